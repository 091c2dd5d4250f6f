"""Pruning against torch's: masks, values and state, in layouts, in eager code and graphs."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.utils.prune as theirs

import onefold as flow
from onefold.engine.sbp import parse
from onefold.errors import (
    OnefoldIndexError,
    OnefoldTypeError,
    OnefoldValueError,
    ShapeError,
)
from onefold.testing.sample_checks import value_of

ours = flow.nn.utils.prune
LAYOUTS = {"local": None, "(S0)": ([0, 1], "(S0)"), "mesh": ([[0, 1], [2, 3]], "(S1, S0)")}


def pair(layout=None):
    torch.manual_seed(1)
    right = torch.nn.Linear(5, 6)
    mine = flow.nn.Linear(5, 6)
    mine.load_state_dict(right.state_dict())
    if layout is not None:
        p = flow.placement("cpu", layout[0])
        whole = (flow.sbp.broadcast,) * p.ndim
        mine.to_global(p, whole)
        mine.to_global(p, lambda name, x: parse(layout[1]) if x.ndim > 1 else whole)
    return right, mine


def placed(x, layout):
    if layout is None:
        return flow.tensor(x.numpy())
    p = flow.placement("cpu", layout[0])
    return flow.tensor(x.numpy(), placement=p, sbp=(flow.sbp.broadcast,) * p.ndim)


def assert_like(mine, right):
    assert list(mine.state_dict()) == list(right.state_dict())
    for name, value in right.state_dict().items():
        torch.testing.assert_close(value_of(mine.state_dict()[name]), value, rtol=0, atol=0)


def prune_both(which, mine, right):
    scores = torch.arange(30.0).reshape(6, 5)
    mask = (scores % 3 > 0).float()
    calls = {
        "identity": lambda lib, net, own: lib.identity(net, "weight"),
        "l1": lambda lib, net, own: lib.l1_unstructured(net, "weight", 0.3),
        "scores": lambda lib, net, own: lib.l1_unstructured(net, "weight", 7, own(scores)),
        "l2 of rows": lambda lib, net, own: lib.ln_structured(net, "weight", 2, 2, 0),
        "l1 of columns": lambda lib, net, own: lib.ln_structured(net, "weight", 0.4, 1, -1),
        "largest": lambda lib, net, own: lib.ln_structured(net, "weight", 1, float("inf"), 1),
        "mask": lambda lib, net, own: lib.custom_from_mask(net, "weight", own(mask)),
        "bias": lambda lib, net, own: lib.l1_unstructured(net, "bias", 0.5),
    }
    calls[which](theirs, right, lambda x: x)
    assert calls[which](ours, mine, lambda x: flow.tensor(x.numpy())) is mine


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "methods",
    [
        ["identity"], ["l1"], ["scores"], ["l2 of rows"], ["l1 of columns"], ["largest"],
        ["mask"], ["bias"], ["l1", "l1"], ["l1", "l2 of rows", "l1 of columns"],
        ["l2 of rows", "l1", "bias"], ["mask", "l1", "mask"],
    ],
    ids=", ".join,
)  # fmt: skip
def test_masks_are_torchs(methods, layout, world):
    right, mine = pair(LAYOUTS[layout])
    meta = mine.weight.meta
    for which in methods:
        prune_both(which, mine, right)
        assert_like(mine, right)
    x = torch.randn(3, 5)
    own = placed(x, LAYOUTS[layout])
    torch.testing.assert_close(value_of(mine(own).detach()), right(x).detach())
    right(x).square().sum().backward()
    mine(own).square().sum().backward()
    for name, param in right.named_parameters():
        torch.testing.assert_close(value_of(mine.get_parameter(name).grad), param.grad)
    if methods != ["bias"]:
        assert mine.weight_mask.meta is mine.weight_orig.meta is meta
    graph = flow.nn.Graph.trace(copy.deepcopy(mine))
    assert torch.equal(value_of(graph(own)), value_of(mine(own).detach()))
    assert ours.is_pruned(mine) and ours.is_pruned(flow.nn.Sequential(mine))
    for name in {"bias" if which == "bias" else "weight" for which in methods}:
        kept = mine.get_parameter(f"{name}_orig")
        theirs.remove(right, name)
        assert ours.remove(mine, name) is mine
        assert mine.get_parameter(name) is kept
    assert_like(mine, right)
    assert not ours.is_pruned(mine)


def test_several_parameters_together(world):
    (right, mine), (other, own) = pair(), pair(LAYOUTS["(S0)"])
    scores = torch.arange(30.0).reshape(6, 5)
    for given in ({}, {"importance_scores": True}):
        mine_scores = {(own, "weight"): flow.tensor(scores.numpy())} if given else None
        their_scores = {(other, "weight"): scores} if given else None
        theirs.global_unstructured(
            [(right, "weight"), (right, "bias"), (other, "weight")],
            theirs.L1Unstructured, their_scores, amount=0.2,
        )  # fmt: skip
        ours.global_unstructured(
            iter([(mine, "weight"), (mine, "bias"), (own, "weight")]),
            ours.L1Unstructured, mine_scores, amount=0.2,
        )  # fmt: skip
        assert_like(mine, right)
        assert_like(own, other)
    with pytest.raises(OnefoldTypeError, match='Only "unstructured" PRUNING_TYPE'):
        ours.global_unstructured([(mine, "bias")], ours.LnStructured, amount=1, n=1)
    with pytest.raises(OnefoldTypeError, match="not an Iterable"):
        ours.global_unstructured(3, ours.L1Unstructured, amount=1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_masks(layout, world):
    found = []
    for _ in range(2):
        _, mine = pair(LAYOUTS[layout])
        flow.manual_seed(3)
        ours.random_unstructured(mine, "weight", 11)
        ours.random_structured(mine, "weight", 2, 0)
        found.append(value_of(mine.weight_mask))
    assert torch.equal(*found)  # by the seed
    rows = found[0].sum(1)
    assert (rows == 0).sum() >= 2
    ours.random_unstructured(mine, "bias", 0.5)
    assert value_of(mine.bias_mask).sum() == 3


def test_a_method_of_a_user(world):
    class Alternate(ours.BasePruningMethod):
        PRUNING_TYPE = "unstructured"

        def compute_mask(self, t, default_mask):
            mask = default_mask.clone()
            mask.view(-1)[::2] = 0
            return mask

    _, mine = pair()
    Alternate.apply(mine, "bias")
    assert value_of(mine.bias_mask).tolist() == [0, 1, 0, 1, 0, 1]
    holder = Alternate.apply(mine, "bias")
    assert isinstance(holder, ours.PruningContainer) and len(holder) == 2
    assert [type(each) for each in holder] == [Alternate, Alternate] and holder[0] is not holder[1]
    assert value_of(mine.bias_mask).tolist() == [0, 0, 0, 1, 0, 0]
    pruned = ours.L1Unstructured(2).prune(flow.tensor([3.0, -1.0, 2.0, 4.0]))
    np.testing.assert_array_equal(pruned.numpy(), [3, 0, 0, 4])


def test_errors_change_nothing(world):
    _, mine = pair()
    keys = list(mine.state_dict())
    with pytest.raises(OnefoldValueError, match=r"amount=1\.5 should either be"):
        ours.l1_unstructured(mine, "weight", 1.5)
    with pytest.raises(OnefoldTypeError, match="Invalid type for amount"):
        ours.l1_unstructured(mine, "weight", "all")
    with pytest.raises(OnefoldValueError, match="amount=31 should be smaller"):
        ours.l1_unstructured(mine, "weight", 31)
    with pytest.raises(OnefoldValueError, match="only be applied to multidimensional"):
        ours.ln_structured(mine, "bias", 1, 2, 0)
    with pytest.raises(OnefoldIndexError, match="Invalid index 2"):
        ours.ln_structured(mine, "weight", 1, 2, 2)
    with pytest.raises(ShapeError, match="importance_scores should have the same shape"):
        ours.l1_unstructured(mine, "weight", 1, flow.ones(3))
    with pytest.raises(ShapeError, match="the mask has the shape"):
        ours.custom_from_mask(mine, "weight", flow.ones(3))
    with pytest.raises(OnefoldValueError, match="has to be pruned before"):
        ours.remove(mine, "weight")
    with pytest.raises(AttributeError, match="no parameter 'missing'"):
        ours.identity(mine, "missing")
    assert list(mine.state_dict()) == keys and isinstance(mine.weight, flow.nn.Parameter)
    ours.identity(mine, "weight")
    with pytest.raises(OnefoldTypeError, match="assign weight_orig"):
        mine.weight = flow.zeros(6, 5)
