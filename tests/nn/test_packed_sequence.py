"""nn.utils.rnn is torch's: packing, padding and their inverses, gradients and errors."""

import re

import numpy as np
import pytest
import torch
import torch.nn.utils.rnn as theirs

import onefold as flow
import onefold.nn.utils.rnn as ours
from onefold.engine.sbp import parse
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

LENGTHS = [3, 1, 4, 2, 4]
LAYOUTS = [None, "(B)", "(S0)", "(S1)", "(S2)", "(P)"]


def values(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def made(value, layout):
    if layout is None:
        return make_local(value)
    return make_global(value, flow.placement("cpu", [0, 1]), parse(layout))


def check(mine, right):
    if right is None:
        assert mine is None
    else:
        torch.testing.assert_close(value_of(mine.detach()), right.detach())


def check_packed(mine, right):
    assert type(mine).__name__ == type(right).__name__
    for name in right._fields:
        check(getattr(mine, name), getattr(right, name))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("enforce_sorted", [False, True])
def test_pack_and_pad(layout, batch_first, enforce_sorted, world):
    lengths = sorted(LENGTHS, reverse=True) if enforce_sorted else LENGTHS
    value = values(5, 6, 3) if batch_first else values(6, 5, 3)
    x, t = made(value, layout).requires_grad_(), value.clone().requires_grad_()
    options = {"batch_first": batch_first, "enforce_sorted": enforce_sorted}
    mine = ours.pack_padded_sequence(x, lengths, **options)
    right = theirs.pack_padded_sequence(t, torch.tensor(lengths), **options)
    check_packed(mine, right)
    check_packed(ours.pack_padded_sequence(x, flow.tensor(lengths), **options), right)
    for total in (None, 7):
        padded, kept = ours.pad_packed_sequence(mine, not batch_first, -2.0, total)
        wanted, right_kept = theirs.pad_packed_sequence(right, not batch_first, -2.0, total)
        check(padded, wanted)
        check(kept, right_kept)
    (padded * padded).sum().backward()
    (wanted * wanted).sum().backward()
    check(x.grad, t.grad)


@pytest.mark.parametrize("layout", [None, "(B)", "(S0)"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_pad_sequence(layout, side, world):
    for dtype in (torch.float64, torch.int64):
        given = [(values(n, 2, seed=n) * 9).to(dtype) for n in LENGTHS]
        for batch_first in (False, True):
            mine = ours.pad_sequence([made(v, layout) for v in given], batch_first, 7, side)
            check(mine, theirs.pad_sequence(given, batch_first, 7, side))


@pytest.mark.parametrize("layout", [None, "(B)", "(S0)"])
def test_sequences(layout, world):
    given = [values(n, 2, seed=n) for n in LENGTHS]
    packed = ours.pack_sequence([made(v, layout) for v in given], enforce_sorted=False)
    check_packed(packed, theirs.pack_sequence(given, enforce_sorted=False))
    for mine, right in zip(ours.unpack_sequence(packed), given, strict=True):
        check(mine, right)
    padded = ours.pad_sequence([made(v, layout) for v in given])
    for lengths in (LENGTHS, flow.tensor(LENGTHS)):
        for mine, right in zip(ours.unpad_sequence(padded, lengths), given, strict=True):
            check(mine, right)


def test_integers_stay_integers(world):
    x = torch.tensor([[1, 2, 0], [3, 0, 0]])
    mine = ours.pack_padded_sequence(make_local(x), [2, 1], batch_first=True)
    right = theirs.pack_padded_sequence(x, torch.tensor([2, 1]), batch_first=True)
    check_packed(mine, right)
    check(
        ours.pad_packed_sequence(mine, padding_value=1.0)[0],
        theirs.pad_packed_sequence(right, padding_value=1.0)[0],
    )


def test_conversions(world):
    packed = ours.pack_sequence([flow.ones(2), flow.ones(3)], enforce_sorted=False)
    assert packed.to(torch.float32) is packed and packed.cpu() is packed and not packed.is_cuda
    for name in "double float half long int short char byte".split():
        changed = getattr(packed, name)()
        assert changed.data.dtype == getattr(torch.ones(1), name)().dtype
        assert changed.sorted_indices.tolist() == [1, 0]
    data, sizes, order, inverse = packed
    assert ours.PackedSequence((data, sizes), sorted_indices=order).unsorted_indices.tolist() == (
        inverse.tolist()
    )
    assert ours.PackedSequence(data, sizes).sorted_indices is None
    assert flow.nn.utils.rnn is ours


def test_a_wrong_element_is_noticed(world):
    given = [values(3), values(2)]
    right = theirs.pack_sequence(given)
    given[1] = given[1] + 1e-3
    with pytest.raises(AssertionError):
        check_packed(ours.pack_sequence([make_local(v) for v in given]), right)


ERRORS = {
    "order": lambda rnn, x, i: rnn.pack_padded_sequence(x(3, 2), i([1, 3])),
    "zero": lambda rnn, x, i: rnn.pack_padded_sequence(x(3, 2), i([3, 0])),
    "number": lambda rnn, x, i: rnn.pack_padded_sequence(x(3, 2), i([3, 2, 1])),
    "order of sequences": lambda rnn, x, i: rnn.pack_sequence([x(1), x(2)]),
    "total length": lambda rnn, x, i: rnn.pad_packed_sequence(
        rnn.pack_sequence([x(2), x(1)]), total_length=1
    ),
    "no list": lambda rnn, x, i: rnn.pad_sequence(3),
    "empty list": lambda rnn, x, i: rnn.pad_sequence([]),
    "side": lambda rnn, x, i: rnn.pad_sequence([x(2)], padding_side="top"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case, world):
    with pytest.raises((RuntimeError, ValueError)) as right:
        ERRORS[case](theirs, torch.ones, torch.tensor)
    with pytest.raises(flow.errors.OnefoldError) as mine:
        ERRORS[case](ours, flow.ones, flow.tensor)
    assert isinstance(mine.value, right.type)
    texts = (str(mine.value), str(right.value))
    found, wanted = (re.sub(r"^\w+_sequence: ", "", text) for text in texts)
    assert found[:40].lower() == wanted[:40].lower()


def test_lengths_that_only_a_graph_computes_are_refused(world):
    graph = flow.nn.Graph.trace(lambda x, n: ours.pack_padded_sequence(x, n).data)
    with pytest.raises(flow.errors.OnefoldRuntimeError, match="the value of a tensor was asked"):
        graph(flow.ones(3, 2), flow.tensor([3, 1]))


def test_batch_sizes_are_on_the_cpu(world):
    placement = flow.placement("cpu", [0, 1])
    sizes = flow.tensor([1], placement=placement, sbp=flow.sbp.broadcast)
    with pytest.raises(flow.errors.OnefoldValueError, match="batch_sizes should always be"):
        ours.PackedSequence(flow.ones(1), sizes)
    with pytest.raises(flow.errors.OnefoldTypeError, match="needs batch_sizes"):
        ours.PackedSequence(flow.ones(2))


def test_sequences_are_packed_where_new_tensors_are_global(world):
    p, b = flow.placement("cpu", [0, 1]), flow.sbp.broadcast
    parts = [values(length, 3) for length in (4, 2, 1)]
    with flow.utils.global_view.global_mode(True, p, b):
        packed = ours.pack_sequence([flow.tensor(part) for part in parts])
        padded, lengths = ours.pad_packed_sequence(packed)
    right, known = theirs.pad_packed_sequence(theirs.pack_sequence(parts))
    check_packed(packed, theirs.pack_sequence(parts))
    check(padded, right)
    check(lengths, known)
    assert packed.data.sbp == padded.sbp == (b,)
    assert not packed.batch_sizes.is_global and not lengths.is_global
