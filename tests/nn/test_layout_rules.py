"""Module.to_global with one sbp, a function or a table of names, from local and global tensors."""

import warnings

import numpy as np
import pytest
from launched import run_ranks

import onefold as flow
from onefold import nn
from onefold.engine.sbp import parse, short
from onefold.errors import OnefoldValueError, SbpError

B, S0, S1 = flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1)


def net():
    flow.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))


def shown(model):
    return {n: short(t.sbp) for n, t in [*model.named_parameters(), *model.named_buffers()]}


def values(model):
    return {n: t.numpy().copy() for n, t in model.named_parameters()}


def test_a_function_gives_placements(world):
    first, second = flow.placement("cpu", [0, 1]), flow.placement("cpu", [3, 2])
    model = net()
    before = values(model)
    model.to_global(lambda name, x: first if name.startswith("0.") else second, B)
    named = dict([*model.named_parameters(), *model.named_buffers()])
    assert {n: x.placement for n, x in named.items()} == {
        n: first if n.startswith("0.") else second for n in named
    }
    model.to_global(lambda name, x: None if x.ndim > 1 else first)
    assert model[2].weight.placement is second and model[2].bias.placement is first
    for name, value in values(model).items():
        np.testing.assert_array_equal(value, before[name])
    with pytest.warns(flow.LocalPartsWarning, match="weight"):
        net().to_global(lambda name, x: first, {"0.weight": S0})


def test_a_table_of_patterns(world):
    p = flow.placement("cpu", [0, 1])
    model = net()
    before = values(model)
    model.to_global(p, {"0.weight": B})  # and what no pattern matches
    assert set(shown(model).values()) == {"(B)"}
    model.to_global(sbp={"0.*": S0, "1.*": None, "2.weight": S1, "*.bias": S0})
    assert shown(model) == {
        "0.weight": "(S0)",
        "0.bias": "(S0)",
        "1.weight": "(B)",
        "1.bias": "(B)",
        "2.weight": "(S1)",
        "2.bias": "(S0)",
        "1.running_mean": "(B)",
        "1.running_var": "(B)",
        "1.num_batches_tracked": "(B)",
    }
    for name, value in values(model).items():
        assert np.array_equal(value, before[name])


def test_none_leaves_a_layout_and_broadcasts_what_is_local(world):
    for ranks, whole, first in (([0, 1], "(B)", "(S0)"), ([[0, 1], [2, 3]], "(B, B)", "(S0, B)")):
        model = net()
        model.to_global(flow.placement("cpu", ranks), lambda name, tensor: None)
        assert set(shown(model).values()) == {whole}
        split = parse(first)
        model.to_global(sbp=lambda name, tensor, split=split: split if tensor.ndim else None)
        model.to_global(sbp=lambda name, tensor: None)
        assert shown(model)["0.weight"] == first and shown(model)["1.num_batches_tracked"] == whole


def test_a_pattern_without_a_match_is_an_error(world):
    model = net().to_global(flow.placement("cpu", [0, 1]), B)
    with pytest.raises(OnefoldValueError, match=r"no parameter or buffer matches '3\.\*'; .* 0.w"):
        model.to_global(sbp={"*.weight": S0, "3.*": S1})
    assert set(shown(model).values()) == {"(B)"}


def test_a_split_of_local_copies_warns_and_joins_them(world):
    p = flow.placement("cpu", [0, 1])
    model = nn.Linear(3, 2)
    before = model.weight.numpy()
    text = r"weight \(and 1 more\) is local.*\(2, 3\) becomes \(4, 3\), as \(S0\)\. .* sbp=flow"
    with pytest.warns(flow.LocalPartsWarning, match=text):
        model.to_global(p, S0)
    assert model.weight.shape == (4, 3)
    assert np.array_equal(model.weight.numpy(), np.concatenate([before, before]))
    with pytest.warns(UserWarning, match="the sum of 2 copies, as"):
        nn.Linear(3, 2, bias=False).to_global(p, flow.sbp.partial_sum)


def test_the_warning_as_an_error_changes_nothing(world):
    model = nn.Linear(3, 2)
    with pytest.raises(flow.LocalPartsWarning):
        model.to_global(flow.placement("cpu", [0, 1]), {"bias": S0})
    assert model.weight.is_local and model.bias.is_local
    with pytest.raises(SbpError):
        model.to_global(flow.placement("cpu", [0, 1]), S1)


def test_no_warning_on_one_rank_or_in_two_steps(world):
    one, two = flow.placement("cpu", [0]), flow.placement("cpu", [0, 1])
    assert nn.Linear(3, 2).to_global(one, S0).weight.shape == (2, 3)
    model = nn.Linear(3, 2).to_global(two, B).to_global(sbp=S0)
    assert model.weight.shape == (2, 3)


def _joined():
    rank = flow.env.get_rank()
    p = flow.placement("cpu", [0, 1])
    model = nn.Linear(3, 2, bias=False)
    mine = model.weight.numpy()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.to_global(p, {"weight": S0})
    names = [w.category.__name__ for w in caught]
    joined = model.weight.numpy()
    equal = np.array_equal(joined[2 * rank : 2 * rank + 2], mine)
    flow.manual_seed(rank)
    whole = nn.Linear(3, 2, bias=False).to_global(p, B).to_global(sbp={"*": S0})
    return names, joined.shape, equal, whole.weight.shape, whole.weight.numpy().tolist()


def test_two_processes():
    results = run_ranks(2, _joined)
    for names, joined, equal, whole, _ in results:
        assert names == ["LocalPartsWarning"]
        assert (joined, equal, whole) == ((4, 3), True, (2, 3))
    assert results[0][4] == results[1][4]
