"""Bad input: the right class, a text that helps, on every rank at once, and nothing is changed.

The same calls run in a virtual world and in two launched processes.
"""

import time

import numpy as np
import pytest
import torch
from launched import run_ranks

import onefold as flow
from onefold.errors import (
    AutogradError,
    MixedTensorsError,
    OnefoldTypeError,
    OnefoldValueError,
    PlacementError,
    RankMismatch,
    SbpError,
    ShapeError,
)

SECONDS = 60.0  # no call may wait for others, which is until ONEFOLD_TIMEOUT, 300 seconds
B, P, S0, S1 = flow.sbp.broadcast, flow.sbp.partial_sum, flow.sbp.split(0), flow.sbp.split(1)


class Scene:
    """The tensors that the bad calls are given, and a check that they stay as they were."""

    def __init__(self):
        self.p = flow.placement("cpu", [0, 1])
        self.other = flow.placement("cpu", [1, 0])
        data = np.arange(12.0).reshape(3, 4)
        self.x = flow.tensor(data, placement=self.p, sbp=S0, requires_grad=True)
        self.w = flow.tensor(data.T, placement=self.p, sbp=S1)
        self.far = flow.tensor(data, placement=self.other, sbp=S0)
        self.local = flow.tensor(data)
        self.leaf = flow.nn.Parameter(flow.tensor(data))
        self.rank = flow.env.get_rank()
        self.model = flow.nn.Linear(4, 2).to_global(self.p, B)
        self.plain = flow.nn.Linear(4, 3, bias=False)
        (self.x * 2).sum().backward()
        self.used = (self.x * self.x).sum()
        self.used.backward()

    def state(self):
        watched = [self.x, self.w, self.far, self.local, self.leaf, *self.model.parameters()]
        return [
            (
                t.version, t.meta, t.requires_grad, [part.tolist() for part in t.shards],
                None if t.grad is None else [part.tolist() for part in t.grad.shards],
            )
            for t in watched
        ] + [flow.get_rng_state(), flow.is_grad_enabled()]  # fmt: skip


# name: (call, class, text)
CASES = {
    "duplicate ranks": (
        lambda s: flow.placement("cpu", [0, 1, 0]),
        PlacementError,
        "rank 0 occurs more than once",
    ),
    "negative ranks": (
        lambda s: flow.placement("cpu", [-1]),
        PlacementError,
        "must be >= 0, but got -1",
    ),
    "sbp too long": (
        lambda s: flow.ones(4, placement=s.p, sbp=(B, B)),
        SbpError,
        "the placement's ranks have 1 axes, but sbp has length 2",
    ),
    "sbp too short": (
        lambda s: s.x.to_global(flow.placement("cpu", [[0, 1]]), B),
        SbpError,
        "the placement's ranks have 2 axes, but sbp has length 1",
    ),
    "split dim out of range": (
        lambda s: s.x.to_global(sbp=flow.sbp.split(2)),
        SbpError,
        "allowed are dims 0 to 1",
    ),
    "split of a scalar": (
        lambda s: flow.tensor(1.0, placement=s.p, sbp=S0),
        SbpError,
        "use broadcast",
    ),
    "negative split dim": (
        lambda s: flow.sbp.split(-2),
        SbpError,
        "Split axis must not be negative, but got -2!",
    ),
    "sbp without placement": (
        lambda s: flow.randn(4, sbp=S0),
        PlacementError,
        "without placement; give both",
    ),
    "placement without sbp": (
        lambda s: flow.randn(4, placement=s.p),
        SbpError,
        "without sbp; give both",
    ),
    "local to_global without placement": (
        lambda s: s.local.to_global(sbp=B),
        PlacementError,
        "without placement",
    ),
    "random partial sum": (
        lambda s: flow.randn(4, placement=s.p, sbp=P),
        SbpError,
        "random source op only support broadcast or split",
    ),
    "mixed add": (
        lambda s: s.x + s.local,
        MixedTensorsError,
        "add: got local and global tensors together",
    ),
    "mixed matmul": (
        lambda s: s.local @ s.w,
        MixedTensorsError,
        "got local and global tensors together",
    ),
    "mixed linear": (
        lambda s: s.model(s.local.float()),
        MixedTensorsError,
        "got local and global tensors together",
    ),
    "mixed cat": (
        lambda s: flow.cat([s.x, s.local]),
        MixedTensorsError,
        "got local and global tensors together",
    ),
    "mixed where": (
        lambda s: flow.where(s.local > 0, s.x, s.x),
        MixedTensorsError,
        "got local and global tensors together",
    ),
    "mixed in place": (
        lambda s: s.local.add_(s.w.t()),
        MixedTensorsError,
        "got local and global tensors together",
    ),
    "two placements": (
        lambda s: s.x + s.far,
        PlacementError,
        "Expected all tensors to be on the same placement, but found at least two placements",
    ),
    "two placements matmul": (
        lambda s: s.far @ s.w,
        PlacementError,
        "Expected all tensors to be on the same placement",
    ),
    "two placements cat": (
        lambda s: flow.cat([s.x, s.far]),
        PlacementError,
        "Expected all tensors to be on the same placement",
    ),
    "two placements in place": (
        lambda s: s.far.mul_(s.w.t()),
        PlacementError,
        "Expected all tensors to be on the same placement",
    ),
    "a torch tensor": (
        lambda s: flow.matmul(s.local, torch.ones(4, 2)),
        OnefoldTypeError,
        "Convert it with onefold.from_torch",
    ),
    "backward twice": (
        lambda s: s.used.backward(),
        AutogradError,
        "backward through the graph a second time",
    ),
    "backward of a constant": (
        lambda s: s.w.sum().backward(),
        AutogradError,
        "does not require grad and does not have a grad_fn",
    ),
    "backward of many": (
        lambda s: (s.x * 2).backward(),
        AutogradError,
        "grad can be implicitly created only for scalar outputs",
    ),
    "gradient of another shape": (
        lambda s: (s.x * 2).backward(s.w),
        ShapeError,
        "gradient must have the shape of the tensor",
    ),
    "in place on a leaf": (
        lambda s: s.leaf.add_(1),
        AutogradError,
        "a leaf Variable that requires grad is being used in an in-place operation",
    ),
    "in place on a global leaf": (
        lambda s: s.x.zero_(),
        AutogradError,
        "a leaf Variable that requires grad",
    ),
    "setitem on a leaf": (
        lambda s: s.leaf.__setitem__(0, 1.0),
        AutogradError,
        "a leaf Variable that requires grad",
    ),
    "loading another shape": (
        lambda s: s.model.load_state_dict({"weight": np.ones((2, 4)), "bias": np.ones(3)}),
        RuntimeError,
        "size mismatch",
    ),
    "loading parts into a local module": (
        lambda s: s.plain.load_state_dict({"weight": s.x.detach()}),
        RuntimeError,
        "the tensor is local but the given value is global",
    ),
    "an optimizer of nothing": (
        lambda s: flow.optim.SGD([]),
        OnefoldValueError,
        "empty parameter list",
    ),
    "a conversion of a module": (
        lambda s: s.model.to_global(s.p, S1),
        SbpError,
        "needs a tensor with more than 1 dims",
    ),
    "bool of many": (
        lambda s: bool(s.x > 1),
        RuntimeError,
        "Boolean value of Tensor with more than one value is ambiguous",
    ),
    "item of many": (lambda s: s.x.item(), ValueError, "item() needs a tensor with one element"),
    "sbp of a local tensor": (
        lambda s: s.local.sbp,
        RuntimeError,
        "Local tensor has no sbp property",
    ),
    "to_local of a local tensor": (lambda s: s.local.to_local(), RuntimeError, "local already"),
}

# Shapes that do not fit, as (name, arguments): torch decides which builtin class the error has.
SHAPES = {
    "add": lambda lib, t: lib.add(t(3, 4), t(3, 3)),
    "sub scalar dims": lambda lib, t: t(2, 3) - t(4),
    "matmul": lambda lib, t: lib.matmul(t(3, 4), t(3, 4)),
    "matmul 0-d": lambda lib, t: lib.matmul(t(), t(3)),
    "bmm": lambda lib, t: lib.bmm(t(2, 3, 4), t(3, 4, 5)),
    "linear": lambda lib, t: lib.nn.functional.linear(t(3, 4), t(5, 3)),
    "reshape": lambda lib, t: t(3, 4).reshape(5, 2),
    "view": lambda lib, t: t(3, 4).view(7),
    "transpose": lambda lib, t: t(3, 4).transpose(0, 2),
    "permute": lambda lib, t: t(3, 4).permute(0, 0),
    "expand": lambda lib, t: t(3, 4).expand(2, 4),
    "sum": lambda lib, t: t(3, 4).sum(2),
    "softmax": lambda lib, t: lib.softmax(t(3, 4), 5),
    "cat": lambda lib, t: lib.cat([t(3, 4), t(3, 3)], 0),
    "cat dim": lambda lib, t: lib.cat([t(3, 4), t(3, 4)], 2),
    "stack": lambda lib, t: lib.stack([t(3, 4), t(3, 3)]),
    "squeeze": lambda lib, t: t(3, 4).squeeze(3),
    "unsqueeze": lambda lib, t: t(3, 4).unsqueeze(4),
    "index": lambda lib, t: t(3, 4)[3],
    "too many indices": lambda lib, t: t(3, 4)[0, 0, 0],
    "narrow": lambda lib, t: t(3, 4).narrow(0, 2, 2),
    "split": lambda lib, t: t(3, 4).split([1, 1], 0),
    "layer_norm": lambda lib, t: lib.nn.functional.layer_norm(t(3, 4), (3,)),
    "nll_loss": lambda lib, t: lib.nn.functional.nll_loss(t(3, 4), t(2).long()),
    "cross_entropy": lambda lib, t: lib.nn.functional.cross_entropy(t(3, 4), t(2).long()),
    "where": lambda lib, t: lib.where(t(3, 4) > 0, t(3, 3), t(3, 4)),
    "conv2d": lambda lib, t: lib.nn.functional.conv2d(t(1, 3, 5, 5), t(2, 4, 3, 3)),
    "einsum": lambda lib, t: lib.einsum("ij,jk->ik", t(3, 4), t(3, 4)),
    "masked_fill": lambda lib, t: t(3, 4).masked_fill(t(3, 3) > 0, 1.0),
    "add_": lambda lib, t: t(4).add_(t(3, 4)),
    "copy_": lambda lib, t: t(4).copy_(t(3)),
    "setitem": lambda lib, t: t(3, 4).__setitem__(0, t(3)),
}
BUILTINS = (RuntimeError, ValueError, TypeError, IndexError)


def outcome(scene, call):
    """(classes, text, whether everything is as it was, in time) of a call that must fail."""
    before, start = scene.state(), time.monotonic()
    try:
        call()
    except Exception as error:  # noqa: BLE001 (its class is what is tested)
        kinds, text = [kind.__name__ for kind in type(error).__mro__], str(error)
    else:
        kinds, text = ["no error"], ""
    return kinds, text, scene.state() == before, time.monotonic() - start < SECONDS


def check(name, found, kind, text):
    kinds, said, same, in_time = found
    assert kind.__name__ in kinds, f"{name}: {kinds}: {said}"
    assert "OnefoldError" in kinds, f"{name}: {kinds}: {said}"
    assert text in said, f"{name}: {said}"
    assert same, f"{name}: something was changed"
    assert in_time, f"{name}: took too long"


def torchs_class(name):
    with pytest.raises(BUILTINS) as caught:
        SHAPES[name](torch, lambda *shape: torch.ones(shape))
    return next(kind for kind in BUILTINS if isinstance(caught.value, kind))


def shape_makers(scene):
    """Ways to make the operands: local, and in layouts of one placement."""
    yield lambda *shape: flow.ones(shape)
    for sbp in (B, P, S0):
        yield lambda *shape, sbp=sbp: flow.ones(shape, placement=scene.p, sbp=sbp if shape else B)


def shape_outcomes(scene, name):
    return [
        outcome(scene, lambda make=make: SHAPES[name](flow, make)) for make in shape_makers(scene)
    ]


# In a virtual world.


@pytest.mark.parametrize("name", CASES)
def test_in_a_virtual_world(name, world):
    call, kind, text = CASES[name]
    scene = Scene()
    check(name, outcome(scene, lambda: call(scene)), kind, text)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_in_a_virtual_world(name, world):
    kind = torchs_class(name)
    for found in shape_outcomes(Scene(), name):
        check(name, found, kind, "")


# In two processes.


def _launched():
    scene = Scene()
    named = {name: outcome(scene, lambda c=call: c(scene)) for name, (call, _, _) in CASES.items()}
    shapes = {name: shape_outcomes(scene, name) for name in SHAPES}
    own = {name: outcome(scene, lambda c=call: c(scene)) for name, (call, _, _) in BETWEEN.items()}
    return named, shapes, own, scene.x.numpy().sum()  # the processes are still in step


BETWEEN = {
    "rank out of range": (
        lambda s: flow.placement("cpu", [0, 7]),
        PlacementError,
        "include 7, but this is rank",
    ),
    "uneven local parts": (
        lambda s: flow.ones(1 + 3 * s.rank, 2).to_global(s.p, S0),
        ShapeError,
        "must be same or match balanced split",
    ),
    "other sizes": (
        lambda s: flow.ones(2, 2 + s.rank).to_global(s.p, S0),
        ShapeError,
        "must be same or match",
    ),
    "other numbers of dims": (
        lambda s: flow.ones([2] * (1 + s.rank)).to_global(s.p, B),
        ShapeError,
        "different numbers of dims",
    ),
    "other dtypes": (
        lambda s: flow.ones(2, dtype=(flow.float32, flow.int32)[s.rank]).to_global(s.p, B),
        RankMismatch,
        "ranks disagree on (dtype, placement, sbp)",
    ),
    "other sbp": (
        lambda s: flow.ones(2, 2).to_global(s.p, (S0, S1)[s.rank]),
        RankMismatch,
        "Every rank must pass the same",
    ),
    "other placements": (
        lambda s: flow.ones(2).to_global((s.p, s.other)[s.rank], S0),
        RankMismatch,
        "ranks disagree",
    ),
    "checked meta": (
        lambda s: flow.ones(2 + s.rank, placement=s.p, sbp=B).check_meta_consistency(),
        RankMismatch,
        "ranks disagree on a tensor",
    ),
}


def test_in_two_processes():
    results = run_ranks(2, _launched, timeout=60.0)
    for named, shapes, own, total in results:
        for name, found in named.items():
            check(name, found, *CASES[name][1:])
        for name, found in own.items():
            check(name, found, *BETWEEN[name][1:])
        for name, several in shapes.items():
            for found in several:
                check(name, found, torchs_class(name), "")
        assert total == 66.0
    first, second = results
    for table in (0, 2):
        for name in first[table]:
            assert first[table][name][0] == second[table][name][0], name


# name: (call that only rank 1 makes wrongly, what rank 1 is told); the other hears of it.
ALONE = {
    "split dim": (lambda s: flow.ones([2] * (2 - s.rank)).to_global(s.p, S1), "more than 1 dims"),
    "without sbp": (lambda s: flow.ones(2).to_global(s.p, (B, None)[s.rank]), "without sbp"),
    "sbp length": (lambda s: flow.ones(2).to_global(s.p, (B, (B, B))[s.rank]), "has length 2"),
}


def _one_is_wrong():
    scene = Scene()
    return {name: outcome(scene, lambda c=call: c(scene)) for name, (call, _) in ALONE.items()}


def test_the_others_hear_of_a_rank_that_is_wrong():
    first, second = run_ranks(2, _one_is_wrong)
    for name, (_, text) in ALONE.items():
        check(name, second[name], SbpError, text)
        check(name, first[name], RankMismatch, "rank 1 could not take part, at test_errors.py")
        check(name, first[name], RankMismatch, text)


def test_the_check_can_fail(world):
    scene = Scene()
    good = outcome(scene, lambda: flow.sbp.split(-1))
    check("good", good, SbpError, "Split axis")
    for bad, kind, text in [
        (good, IndexError, "Split axis"),
        (good, SbpError, "something else"),
        (outcome(scene, lambda: None), SbpError, ""),
        (outcome(scene, lambda: 1 / 0), ZeroDivisionError, "division"),
        (outcome(scene, lambda: (scene.local.add_(1), flow.sbp.split(-1))), SbpError, "Split axis"),
    ]:
        with pytest.raises(AssertionError):
            check("bad", bad, kind, text)
