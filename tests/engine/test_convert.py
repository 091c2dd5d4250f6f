"""to_global, to_local and their kin: values, layouts of gradients, and the errors."""

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold.engine import local_shards
from onefold.engine.names import names
from onefold.engine.placement import Placement
from onefold.engine.sbp import parse, short
from onefold.errors import (
    OnefoldRuntimeError,
    PlacementError,
    RankMismatch,
    SbpError,
    ShapeError,
)
from onefold.testing.sample_checks import value_of

B, P, S0, S1 = flow.sbp.broadcast, flow.sbp.partial_sum, flow.sbp.split(0), flow.sbp.split(1)


def line(*ranks):
    return flow.placement("cpu", list(ranks))


def filled(nd_sbp, placement=None, shape=(6, 4), **kwargs):
    data = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    return flow.tensor(data, placement=placement or line(0, 1), sbp=parse(nd_sbp), **kwargs)


# Global to global.


@pytest.mark.parametrize("target", ["(S0)", "(S1)", "(B)", "(P)"])
@pytest.mark.parametrize("source", ["(S0)", "(S1)", "(B)", "(P)"])
def test_the_value_stays(source, target, world):
    x = filled(source)
    for placement in (line(0, 1), line(1, 0), line(2, 3, 4)):
        y = x.to_global(placement, parse(target))
        assert y.placement is placement and y.sbp == parse(target)
        assert torch.equal(value_of(y), value_of(x))


def test_what_is_left_out_is_kept(world):
    x = filled("(S0)")
    assert x.to_global(sbp=B).placement is x.placement
    assert x.to_global(placement=line(2, 3)).sbp == (S0,)
    assert x.to_global() is x and x.global_to_global(sbp=S0) is x
    text = "has 2 axes but the tensor's sbp .S0. has 1"
    with pytest.raises(SbpError, match=text):
        x.to_global(placement=flow.placement("cpu", [[0, 1]]))


def test_copy_gives_another_tensor(world):
    x = filled("(S0)", requires_grad=True)
    y = x.to_global(sbp=S0, copy=True)
    assert y is not x and torch.equal(value_of(y), value_of(x))
    y.sum().backward()
    assert x.grad.numpy().tolist() == np.ones((6, 4)).tolist()


@pytest.mark.parametrize("grad_sbp", [None, "(S0)", "(S1)", "(B)", "(P)"])
def test_grad_sbp(grad_sbp, world):
    x = filled("(S0)", requires_grad=True)
    y = x.to_global(sbp=B, grad_sbp=None if grad_sbp is None else parse(grad_sbp))
    coefficients = filled("(S1)")
    y.backward(coefficients)
    wanted = "(S1)" if grad_sbp is None else grad_sbp  # as produced, else as asked
    assert short(x.grad.sbp) == wanted and x.grad.placement is x.placement
    assert torch.equal(value_of(x.grad), value_of(coefficients))


def test_grad_sbp_without_a_change_of_layout(world):
    """LiBai's idiom: the sum over a partial gradient happens at this point of the program."""
    x = filled("(B)", requires_grad=True)
    x.to_global(grad_sbp=x.sbp).backward(filled("(P)"))
    assert x.grad.sbp == (B,)


def test_gradients_come_back_to_the_inputs_placement(world):
    x = filled("(S0)", requires_grad=True)
    grid = flow.placement("cpu", [[2, 3], [5, 4]])
    y = x.to_global(grid, parse("(B, S1)"))
    (y * filled("(S0, B)", grid)).sum().backward()
    assert x.grad.placement is x.placement
    assert x.grad.sbp == (S0,), "another mesh: the gradient takes the input's layout"
    assert torch.equal(value_of(x.grad), value_of(filled("(S0)")))


# Local to global and back.


def test_a_local_part_moves_to_the_devices_of_the_ranks(world, monkeypatch):
    cpu, meta = torch.device("cpu"), torch.device("meta")  # one stands for a GPU
    monkeypatch.setattr(type(line(0)), "device", lambda self, rank: meta if rank else cpu)
    x = flow.ones(4)
    for sbp in (B, S0, P):
        y = x.to_global(line(0, 1), sbp)
        assert [part.device for part in y.shards] == [cpu, meta]
        assert y.shards[0] is x.shards[0]
    copies = x.to_global(line(0, 2), B, copy=True)
    assert [part.device for part in copies.shards] == [cpu, meta]
    assert copies.shards[0] is not x.shards[0]


def test_launched_a_part_is_on_the_devices_of_the_ranks_before_it_travels(monkeypatch):
    """Ranks whose parts are on the host and on a device would meet in Gloo and in NCCL."""

    def program():
        devices = []
        monkeypatch.setattr(
            local_shards.collectives, "broadcast", lambda t, *args: devices.append(args[2]) or t
        )
        monkeypatch.setattr(Placement, "device", lambda self, rank: torch.device("meta"))
        flow.ones(4).to_global(line(0, 1), B)
        return [str(device) for device in devices]

    assert run_ranks(2, program) == [["meta"]] * 2


def test_the_gradient_of_a_part_is_where_the_part_is(world, monkeypatch):
    moved = []
    to = names.to
    monkeypatch.setattr(names, "to", lambda x, device: moved.append(device) or to(x, device))
    x = flow.ones(4, requires_grad=True)
    x.to_global(line(0), B).sum().backward()
    assert moved == [torch.device("cpu")]
    assert x.grad.tolist() == [1.0] * 4


@pytest.mark.parametrize(
    ("sbp", "shape"), [("(S0)", (4, 3)), ("(S1)", (2, 6)), ("(B)", (2, 3)), ("(P)", (2, 3))]
)
def test_local_to_global_in_a_virtual_world(sbp, shape, world):
    x = flow.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    y = x.to_global(line(0, 1), parse(sbp))
    assert y.shape == shape and y.sbp == parse(sbp)
    parts = [x.to_torch()] * 2  # a local tensor stands for the same value on every rank
    wanted = {
        "(S0)": torch.cat(parts),
        "(S1)": torch.cat(parts, 1),
        "(B)": parts[0],
        "(P)": 2 * parts[0],
    }
    assert torch.equal(value_of(y), wanted[sbp])
    y.sum().backward()
    assert x.grad.is_local and x.grad.shape == x.shape
    assert x.grad.numpy().tolist() == np.ones((2, 3)).tolist()


@pytest.mark.parametrize(
    ("sbp", "dual"), [("(S0)", "(S0)"), ("(S1)", "(S1)"), ("(B)", "(P)"), ("(P)", "(B)")]
)
def test_the_gradient_of_to_local_has_the_dual_layout(sbp, dual, world):
    x = filled(sbp, requires_grad=True)
    y = x.to_local()
    assert y.is_local and torch.equal(y.to_torch(), x.shards[0])
    y.backward(flow.ones(*y.shape, dtype=y.dtype))
    assert short(x.grad.sbp) == dual
    assert all(part.eq(1).all() for part in x.grad.shards)


def test_to_local_of_uneven_shards_has_no_gradient_in_a_virtual_world(world):
    x = filled("(S0)", shape=(5, 2), requires_grad=True)
    y = x.to_local()
    assert y.shape == (3, 2)
    with pytest.raises(ShapeError, match="is split unevenly"):
        y.sum().backward()
    assert x.grad is None


def test_copies_share_no_memory(world):
    x = flow.zeros(2, 3)
    for convert in (
        lambda: x.to_global(line(0, 1), B, copy=True),
        lambda: filled("(B)").to_local(copy=True),
    ):
        before, y = x.tolist(), convert()
        y.add_(1)
        assert x.tolist() == before


def test_changing_one_side_in_place_leaves_the_other(world):
    x = flow.zeros(2, 3)
    y = x.to_global(line(0, 1), B)
    x.add_(1)
    assert y.numpy().sum() == 0
    y.add_(5)
    assert x.numpy().sum() == 6
    z = y.to_local()
    z.zero_()
    assert y.numpy().sum() == 30


def test_check_meta_is_nothing_in_a_virtual_world(world):
    filled("(S0)").check_meta_consistency()
    assert filled("(S0)").to_global(sbp=B, check_meta=True).sbp == (B,)


BAD = [
    (lambda: flow.ones(2).to_global(sbp=B), PlacementError, "without placement; give both"),
    (lambda: flow.ones(2).to_global(line(0, 1)), SbpError, "without sbp; give both"),
    (
        lambda: flow.ones(2).to_global(line(0, 1), S1),
        SbpError,
        "needs a tensor with more than 1 dims",
    ),
    (lambda: flow.ones(2).to_global(line(0, 1), (S0, B)), SbpError, "sbp has length 2"),
    (lambda: flow.ones(2).to_global("cpu", B), PlacementError, "must be an onefold.placement"),
    (
        lambda: flow.ones(2).to_global(line(0, 1), B, grad_sbp=B),
        SbpError,
        "grad_sbp is for global tensors",
    ),
    (
        lambda: flow.ones(2).global_to_global(sbp=B),
        OnefoldRuntimeError,
        "the tensor is local; use local_to_global",
    ),
    (lambda: flow.ones(2).to_local(), OnefoldRuntimeError, "local already"),
    (
        lambda: filled("(S0)").local_to_global(line(0, 1), B),
        OnefoldRuntimeError,
        "global already; use global_to_global",
    ),
    (lambda: filled("(S0)").to_global(sbp=flow.sbp.split(2)), SbpError, "allowed are dims 0 to 1"),
    (lambda: filled("(S0)").to_global(sbp=B, grad_sbp=(B, B)), SbpError, "sbp has length 2"),
    (
        lambda: filled("(S0)").to_consistent(line(0, 1), B),
        OnefoldRuntimeError,
        "to_consistent has been removed, please use .to_global instead",
    ),
    (lambda: flow.ones(2).placement, OnefoldRuntimeError, "Only global tensors have 'placement'"),
    (lambda: flow.ones(2).sbp, OnefoldRuntimeError, "Local tensor has no sbp property"),
]


@pytest.mark.parametrize("index", range(len(BAD)))
def test_bad_input(index, world):
    call, kind, text = BAD[index]
    with pytest.raises(kind, match=text):
        call()


# With two processes, where each holds a part of its own.


def _launched_values(ranks):
    rank = flow.env.get_rank()
    place = flow.placement("cpu", ranks)
    order = ranks.index(rank)
    found = {}
    for sbp in ("(S0)", "(B)", "(P)"):
        x = flow.tensor([[1.0 + rank, 2.0], [3.0, 4.0]], requires_grad=True)
        y = x.to_global(place, parse(sbp))
        weight = flow.tensor(
            np.arange(y.numel(), dtype=np.float32).reshape(y.shape), placement=place, sbp=(B,)
        )
        (y * weight).sum().backward()
        back = y.detach().requires_grad_()
        part = back.to_local()
        part.backward(flow.full(part.shape, 1.0 + rank))
        found[sbp] = (
            y.numpy().tolist(),
            x.grad.numpy().tolist(),
            part.numpy().tolist(),
            short(back.grad.sbp),
            back.grad.numpy().tolist(),
        )
    return order, found


@pytest.mark.parametrize("ranks", [[0, 1], [1, 0]])
def test_values_and_gradients_in_a_launched_world(ranks):
    results = sorted(run_ranks(2, _launched_values, ranks), key=lambda result: result[0])
    parts = [np.array([[1.0 + rank, 2.0], [3.0, 4.0]]) for rank in ranks]
    seeds = [np.full((2, 2), 1.0 + rank) for rank in ranks]
    w2 = np.arange(4.0).reshape(2, 2)
    w4 = np.arange(8.0).reshape(4, 2)
    zero = np.zeros((2, 2))
    wanted = {  # value, gradient of the parts, shards, layout and value of to_local's gradient
        "(S0)": (np.concatenate(parts), [w4[:2], w4[2:]], parts, "(S0)", np.concatenate(seeds)),
        "(B)": (parts[0], [w2, zero], [parts[0]] * 2, "(P)", seeds[0] + seeds[1]),
        "(P)": (parts[0] + parts[1], [w2, w2], parts, "(B)", None),
    }
    for order, found in results:
        for sbp, (value, grads, shards, dual, back) in wanted.items():
            assert np.array_equal(found[sbp][0], value), sbp
            assert np.array_equal(found[sbp][1], grads[order]), sbp
            assert np.array_equal(found[sbp][2], shards[order]), sbp
            assert found[sbp][3] == dual
            assert back is None or np.array_equal(found[sbp][4], back), sbp


def _on_one_of_two():
    rank = flow.env.get_rank()
    place = flow.placement("cpu", [1])
    x = flow.full((2, 3), float(rank), requires_grad=True)
    y = x.to_global(place, B)
    assert y.shape == (2, 3) and y.is_global
    (y * 2).sum().backward()
    part = y.to_local()
    return y.numpy().tolist(), x.grad.numpy().tolist(), tuple(part.shape), repr(y.detach())


def test_processes_outside_the_placement():
    (v0, g0, s0, r0), (v1, g1, s1, r1) = run_ranks(2, _on_one_of_two)
    assert v0 == v1 == [[1.0] * 3] * 2 and r0 == r1
    assert g0 == [[0.0] * 3] * 2 and g1 == [[2.0] * 3] * 2
    assert (s0, s1) == ((0,), (2, 3))


def _attempt(call):
    try:
        call(flow.env.get_rank())
    except flow.OnefoldError as error:
        return type(error).__name__, str(error)
    return None


def _disagreements():
    p = flow.placement("cpu", [0, 1])
    return [
        _attempt(lambda r: flow.ones(2 + 2 * r, 3).to_global(p, S0)),
        _attempt(lambda r: flow.ones(2, 3 + r).to_global(p, S0)),
        _attempt(lambda r: flow.ones(2, 3 + r).to_global(p, B)),
        _attempt(lambda r: flow.ones(*([2] * (1 + r))).to_global(p, B)),
        _attempt(lambda r: flow.ones(2, 3).to_global(p, S1 if r else S0)),
        _attempt(lambda r: flow.ones(2, 3).to_global(flow.placement("cpu", [[r, 1 - r]][0]), S0)),
        _attempt(lambda r: flow.ones(2, dtype=flow.int64 if r else flow.float32).to_global(p, S0)),
        _attempt(lambda r: flow.ones(2 + r, placement=p, sbp=B).check_meta_consistency()),
        flow.ones(3 - flow.env.get_rank(), 2).to_global(p, S0).numpy().shape,  # all still works
    ]


def test_ranks_that_disagree_get_the_same_error_at_once():
    texts = [
        ("ShapeError", "Sizes of tensors in dimension 0 must be same or match balanced split"),
        ("ShapeError", "Sizes of tensors in dimension 0 must be same or match balanced split"),
        ("ShapeError", "Sizes of tensors in every dimension must be same"),
        ("ShapeError", "the parts have different numbers of dims"),
        ("RankMismatch", "ranks disagree on"),
        ("RankMismatch", "ranks disagree on"),
        ("RankMismatch", "ranks disagree on"),
        ("RankMismatch", "ranks disagree on a tensor"),
    ]
    first, second = run_ranks(2, _disagreements)
    for found in (first, second):
        for error, (kind, text) in zip(found[:-1], texts, strict=True):
            assert error is not None and error[0] == kind and text in error[1]
        assert found[-1] == (5, 2)
    assert issubclass(RankMismatch, RuntimeError)
