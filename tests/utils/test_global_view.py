"""Conversion of trees, the mode in which new tensors are global, and torch's names in utils."""

from contextlib import contextmanager

import pytest
import torch
import torch.utils.checkpoint
from launched import run_ranks

import onefold as flow
from onefold.utils import checkpoint, global_view

S0, B = flow.sbp.split(0), flow.sbp.broadcast


@pytest.fixture
def p(world):
    return flow.placement("cpu", [0, 1])


def test_trees_become_global_and_local(p):
    tree = {"x": [flow.ones(2, 3), None], "y": (flow.arange(4),)}
    there = global_view.to_global(tree, p, S0)
    assert there["x"][0].shape == (4, 3)
    assert there["x"][1] is None
    assert there["y"][0].sbp == (S0,)
    back = global_view.to_local(there)
    assert back["x"][0].tolist() == tree["x"][0].tolist()
    named = global_view.to_global(tree, p, lambda all, x: B if x is all["x"][0] else S0)
    assert (named["x"][0].sbp, named["y"][0].sbp) == ((B,), (S0,))
    assert global_view.to_global(there["x"][0], sbp=B, check_meta=True).sbp == (B,)
    model = global_view.to_global(flow.nn.Linear(2, 2), p, B)
    assert model.weight.is_global
    state = global_view.to_local(model.state_dict())
    assert state["weight"].is_local
    assert global_view.to_local(model).weight.is_local


def test_other_leaves_are_told(p):
    with pytest.warns(UserWarning, match="int, which is no Tensor"):
        assert global_view.to_global([flow.ones(2), 3], p, B)[1] == 3
    assert global_view.to_global([3], p, B, warn_on_non_tensor_leaf=False) == [3]


def _read_by_one():
    rank, where = flow.env.get_rank(), flow.placement("cpu", [1])
    tree = {"x": [flow.ones(2, dtype=flow.float64), None], "step": 3} if rank == 1 else None
    sbp = lambda all, x: B if x is all["x"][0] else S0  # noqa: E731
    there = global_view.to_global(tree, where, sbp, warn_on_non_tensor_leaf=False)
    everywhere = there["x"][0].to_global(flow.placement("cpu", [0, 1]), B).to_local()
    alone = global_view.to_global(flow.ones(2) if rank == 1 else None, where, B)
    return everywhere.dtype is flow.float64, everywhere.tolist(), there["step"], alone.shape == (2,)


def test_other_ranks_take_what_the_placements_first_rank_has():
    """As in OneFlow, where one rank reads a file and all make its tensors global."""
    assert run_ranks(2, _read_by_one) == [(True, [1, 1], 3, True)] * 2


def local_program():
    """A program for local tensors, with devices."""
    device = torch.device("cpu")
    model = flow.nn.Linear(4, 4, device=device)
    x = flow.randn(6, 4, device="cpu").to(device)
    y = model(x) + flow.zeros(4, device=x.device)
    mask = flow.ones_like(y)
    y = y * mask + y.new_full((1,), 2.0) + flow.tensor([1.0], device=y.device)
    y.sum().backward()
    return y, model.weight.grad


def test_a_local_program_runs_globally(p):
    flow.manual_seed(0)
    wanted = local_program()
    flow.manual_seed(0)
    with global_view.global_mode(True, p, B):
        mode = global_view.current_global_mode()
        assert (mode.is_enabled, mode.placement, mode.sbp) == (True, p, (B,))
        found = local_program()
        with global_view.global_mode(False):
            assert flow.ones(2).is_local
            assert not global_view.current_global_mode().is_enabled
        assert flow.ones(2, placement=p, sbp=S0).sbp == (S0,)
    for a, b in zip(found, wanted, strict=True):
        assert a.placement is p
        assert a.tolist() == b.tolist()
    mode = global_view.current_global_mode()
    assert (mode.is_enabled, mode.placement, mode.sbp) == (False, None, None)
    other = flow.placement("cpu", [2, 3])
    x = flow.ones(2, placement=other, sbp=B)
    with global_view.global_mode(True, p, S0):
        assert flow.zeros(4, device=found[0].device).sbp == (S0,)
        assert flow.zeros(4, device=x.device).placement is other


def test_what_is_made_beside_a_local_tensor_stays_local(p):
    x = flow.arange(6.0).reshape(3, 2).requires_grad_()
    with global_view.global_mode(True, p, S0):
        for y in (
            x.new_zeros(2),
            flow.rand_like(x),
            flow.zeros_like(x),
            x[flow.tensor([0]).to_local()],
        ):
            assert y.is_local
        flow.where(x > 2, x, 0.0).sum().backward()
        made = flow.randn(4, 2)
    assert x.grad.is_local
    assert made.sbp == (S0,)


def test_the_mode_decorates_and_checks(p):
    @global_view.global_mode(True, p, S0)
    def make():
        return flow.ones(4)

    assert make().sbp == (S0,)
    assert flow.ones(4).is_local
    with pytest.raises(flow.errors.PlacementError, match="placement"):
        global_view.global_mode(True)
    with pytest.raises(flow.errors.SbpError, match="sbp is None"):
        global_view.global_mode(True, p)
    with pytest.raises(TypeError, match="bool"):
        global_view.global_mode(p)


def _launched():
    p = flow.placement("cpu", [0, 1])
    tree = global_view.to_global({"x": flow.full((2,), float(flow.env.get_rank()))}, p, S0)
    with global_view.global_mode(True, p, S0):
        made = flow.arange(4)
    return tree["x"].tolist(), global_view.to_local(tree)["x"].tolist(), made.to_local().tolist()


def test_launched_ranks():
    joined = [0, 0, 1, 1]
    assert run_ranks(2, _launched) == [(joined, [0, 0], [0, 1]), (joined, [1, 1], [2, 3])]


def test_torch_names():
    value = torch.ones(2)
    x = flow.utils.tensor.from_torch(value)
    value[0] = 5
    assert x.tolist() == [5, 1]
    assert flow.utils.tensor.to_torch(x).tolist() == [5, 1]


@pytest.mark.parametrize("segments", [1, 2, 3])
def test_checkpoints_take_torchs_arguments(segments):
    def run(make, through):
        flow.manual_seed(0)
        model = flow.nn.Sequential(*[flow.nn.Linear(3, 3) for _ in range(5)], flow.nn.Dropout(0.5))
        x = flow.randn(2, 3, requires_grad=True)
        y = make(model, x, through)
        y.square().sum().backward()
        return y.tolist(), x.grad.tolist(), [w.grad.tolist() for w in model.parameters()]

    plain = run(lambda model, x, _: model(x), None)
    assert plain == run(
        lambda model, x, _: checkpoint.checkpoint(model, x, use_reentrant=False), None
    )
    assert plain == run(
        lambda model, x, n: checkpoint.checkpoint_sequential(model, n, x, use_reentrant=True),
        segments,
    )
    more = {"determinism_check": "none", "debug": False, "early_stop": False}
    assert plain == run(lambda model, x, _: checkpoint.checkpoint(model, x, **more), None)
    with pytest.raises(ValueError, match="1 to 2"):
        checkpoint.checkpoint_sequential([flow.sin, flow.cos], 3, flow.ones(1))


def test_contexts_of_a_checkpoint(world):
    """One for the call, one for when it is computed again, as torch has it."""
    seen = {}
    for lib in (flow, torch):
        entered = seen[lib] = []

        def contexts(entered=entered):
            return (
                contextmanager(lambda: (yield entered.append("first")))(),
                contextmanager(lambda: (yield entered.append("again")))(),
            )

        x = lib.ones(2, requires_grad=True)
        y = lib.utils.checkpoint.checkpoint(
            lambda x: x.sin().cos(), x, use_reentrant=False, context_fn=contexts
        )
        assert entered == ["first"]
        y.sum().backward()
    assert seen[flow] == seen[torch] == ["first", "again"]
