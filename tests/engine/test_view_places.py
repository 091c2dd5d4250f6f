"""Writes to parts of x.data: what the tape keeps of other elements is as it was."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import onefold as flow
from onefold.engine.sbp import parse
from onefold.engine.view_places import unnoticed

VIEWS = {
    "row": lambda x: x[1],
    "last column": lambda x: x[..., 3],
    "first columns": lambda x: x[..., :3],
    "odd columns": lambda x: x[:, 1::2],
    "even columns": lambda x: x[:, ::2],
    "columns": lambda x: x.t()[2:],
    "block": lambda x: x[:2, 1:3],
    "flat": lambda x: x.view(-1)[5:9],
    "halves": lambda x: x.view(3, 2, 2)[:, 0],
    "chunk": lambda x: x.chunk(3)[2],
    "windows": lambda x: x.unfold(1, 2, 2)[:, 1],
    "all": lambda x: x.view(2, 6),
    "expanded": lambda x: x[0, :1].expand(3),
}
CERTAIN = [("last column", "first columns"), ("odd columns", "even columns"), ("row", "chunk")]


@pytest.mark.parametrize("written", VIEWS)
def test_what_counts_as_unchanged_has_no_written_element(written, world):
    for read, view in VIEWS.items():
        base = flow.from_numpy(np.arange(12.0).reshape(3, 4))
        kept, part = view(base), VIEWS[written](base.data)
        found = bool(unnoticed([base, kept, part], part))
        shared = np.intersect1d(kept.numpy(), part.numpy()).size > 0
        assert not (found and shared), (read, written)
        if (written, read) in CERTAIN or (read, written) in CERTAIN:
            assert found
        assert not unnoticed([base, kept], VIEWS[written](base)), "as in torch"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_of_slices_it_is_always_known(data):
    def indices(size):
        start = data.draw(st.integers(0, size - 1))
        return slice(start, data.draw(st.integers(start + 1, size)), data.draw(st.integers(1, 3)))

    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    base = flow.from_numpy(np.arange(np.prod(shape)).reshape(shape))
    read, written = (tuple(indices(size) for size in shape) for _ in range(2))
    kept, part = base[read], base.data[written]
    shared = np.intersect1d(kept.numpy(), part.numpy()).size > 0
    whole = kept.numel() == base.numel()
    assert bool(unnoticed([base, kept], part)) == (not shared and not whole)
    assert bool(unnoticed([base, kept], base.data, written)) == (not shared and not whole)


@pytest.mark.parametrize("sbp", ["", "(B)", "(S0)", "(S1)"])
def test_columns_that_are_filled_one_by_one(sbp, world):
    """As solvers of differential equations do, to keep the columns that backward needs."""

    def fill(lib, x, **layout):
        class Put(lib.autograd.Function):
            @staticmethod
            def forward(ctx, to, value, index):
                ctx.index = index
                to.data[index] = value
                return to

            @staticmethod
            def backward(ctx, dy):
                return dy, dy[ctx.index], None

        columns = Put.apply(lib.zeros(4, 4, **layout), x, (..., 0))
        for index in range(3):
            mean = (columns[..., : index + 1] * (0.5 + index)).mean(-1)
            columns = Put.apply(columns, mean.sin(), (..., index + 1))
        (columns * columns).sum().backward()
        return columns

    values = [1.0, 2.0, 3.0, 4.0]
    theirs = torch.tensor(values, requires_grad=True)
    wanted = fill(torch, theirs)
    layout = {"placement": flow.placement("cpu", [0, 1]), "sbp": parse(sbp)} if sbp else {}
    along = {**layout, "sbp": parse("(S0)" if sbp == "(S0)" else "(B)")} if sbp else {}
    ours = flow.tensor(values, requires_grad=True, **along)
    found = fill(flow, ours, **layout)
    torch.testing.assert_close(torch.tensor(found.tolist()), torch.tensor(wanted.tolist()))
    torch.testing.assert_close(torch.tensor(ours.grad.tolist()), theirs.grad)


def test_other_writes_are_noticed(world):
    for write in (
        lambda y: y.data[2:].fill_(5.0),
        lambda y: y.data.__setitem__(2, 5.0),
        lambda y: y.data.__setitem__([2], 5.0),
        lambda y: y[3:].fill_(5.0),
    ):
        x = flow.ones(4, requires_grad=True)
        y = x * 1
        square = y[:3] * y[:3]
        with flow.no_grad():
            write(y)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            square.sum().backward()
