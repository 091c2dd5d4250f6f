"""Indexing by random indices against numpy's rules as torch has them, layouts and errors."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import onefold as flow
from onefold.engine.views import base_of
from onefold.errors import OnefoldRuntimeError
from onefold.kernels import slicing_ref

P2 = flow.placement("cpu", [0, 1])
P3 = flow.placement("cpu", [0, 1, 2])
S0, S1, B = flow.sbp.split(0), flow.sbp.split(1), flow.sbp.broadcast
PARTIAL = flow.sbp.partial_sum
SHAPE = (5, 4, 3)
LAYOUTS = [None, (P2, S0), (P3, S0), (P2, S1), (P3, S1), (P2, PARTIAL), (P2, B)]


def make(value, layout):
    if layout is None:
        return flow.tensor(value)
    placement, sbp = layout
    return flow.tensor(value, placement=placement, sbp=B).to_global(sbp=sbp)


@st.composite
def indices(draw):
    """An index of a tensor of SHAPE: ints, slices, None, ..., lists and bool lists."""
    items = []
    for size in SHAPE[: draw(st.integers(0, 3))]:
        bound = st.none() | st.integers(-size - 1, size + 1)
        items.append(
            draw(
                st.integers(-size, size - 1)
                | st.builds(slice, bound, bound, st.none() | st.integers(1, 3))
                | st.lists(st.integers(-size, size - 1), min_size=2, max_size=2)
            )
        )
    for item in draw(st.lists(st.sampled_from([None, ...]), max_size=2, unique=True)):
        # An ellipsis before the end would move the items behind it to smaller dims.
        items.insert(len(items) if item is ... else draw(st.integers(0, len(items))), item)
    return tuple(items)


@given(indices(), st.sampled_from(LAYOUTS))
def test_getitem(index, layout):
    value = torch.arange(60.0).reshape(SHAPE)
    found = make(value, layout)[index]
    assert torch.equal(torch.from_numpy(found.numpy()), value[index])


@given(indices(), st.sampled_from(LAYOUTS), st.booleans())
def test_setitem(index, layout, single):
    value = torch.arange(60.0).reshape(SHAPE)
    wanted = value.clone()
    part = torch.tensor(7.0) if single else -torch.arange(1.0, 1 + value[index].numel())
    part = part if single else part.reshape(value[index].shape)
    x = make(value, layout)
    x[index] = make(part, None if layout is None else (layout[0], B))
    # Where an index occurs twice, any of the values may stay: look at what was hit.
    wanted[index] = part
    found = torch.from_numpy(x.numpy())
    assert torch.equal(found != value, wanted != value)
    assert set(found.flatten().tolist()) <= {*value.flatten().tolist(), *part.flatten().tolist()}
    assert layout is None or x.sbp == (layout[1],)


@given(
    st.integers(-3, 9), st.integers(-3, 9), st.integers(1, 4), st.integers(0, 8), st.integers(0, 8)
)
def test_overlap(start, stop, step, offset, size):
    whole = list(range(8))
    size = min(size, 8 - offset)
    begin, end, _ = slice(start, stop, step).indices(8)
    entry = slice(begin, max(begin, end), step)
    cuts = slicing_ref.overlap([entry], [offset], [size])
    wanted = {i: v for i, v in enumerate(whole[entry]) if offset <= v < offset + size}
    if cuts is None:
        assert not wanted
    else:
        (mine,), (place,) = cuts
        shard = whole[offset : offset + size]
        places = list(range(8))[place]
        assert dict(zip(places, shard[mine], strict=True)) == wanted


def test_layouts_of_slices():
    x = flow.randn(6, 4, placement=P2, sbp=S0)
    assert x[:, 1:3].sbp == (S0,)
    assert x[:, None, 1].sbp == (S0,)
    assert x[2:4].sbp == (PARTIAL,)
    assert x[1].sbp == (PARTIAL,)
    assert flow.tensor([True, False], placement=P2, sbp=S0)[1:].tolist() == [False]


def test_layouts_of_embedding():
    weight = flow.randn(7, 4, placement=P2, sbp=S0)
    index = flow.tensor([[0, 6, 3]], placement=P2, sbp=B)
    rows = flow.nn.functional.embedding(index, weight)
    assert rows.sbp == (PARTIAL,)
    assert flow.nn.functional.embedding(index, weight.to_global(sbp=S1)).sbp == (flow.sbp.split(2),)
    weight.requires_grad_()
    flow.nn.functional.embedding(index, weight).sum().backward()
    assert weight.grad.numpy().sum(1).tolist() == [4.0, 0.0, 0.0, 4.0, 0.0, 0.0, 4.0]


@pytest.mark.parametrize("layout", [None, (P2, S0), (P2, S1), (P3, S0)])
@pytest.mark.parametrize("value", [-1, 7])
def test_an_index_without_a_row_is_named(layout, value):
    weight = make(torch.ones(7, 4), layout)
    index = make(torch.tensor([0, value]), layout and (layout[0], B))
    with pytest.raises(IndexError, match=rf"{value}.*7 rows"):
        flow.nn.functional.embedding(index, weight)


@pytest.mark.parametrize("layout", [None, (P2, S0), (P3, S0)])
def test_an_index_out_of_bounds_is_named(layout):
    x = make(torch.ones(7, 4), layout)
    index = make(torch.tensor([0, 9]), layout and (layout[0], B))
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension 0 with size 7"):
        x[index]
    with pytest.raises(RuntimeError, match="index 9 is out of bounds for dimension 0 with size 7"):
        flow.gather(x, 0, index.reshape(2, 1))


def test_a_mask_of_a_split_tensor():
    x = flow.arange(6, placement=P3, sbp=S0)
    assert x[x > 2].tolist() == [3, 4, 5]
    assert flow.masked_select(x, x > 9).shape == (0,)
    x[x > 3] = 0
    assert x.tolist() == [0, 1, 2, 3, 0, 0]
    assert x.sbp == (S0,)


@pytest.mark.parametrize("shape", [(), (2, 3)])
@pytest.mark.parametrize("mask", [True, False])
def test_a_mask_of_no_dims_is_read_by_the_graph(shape, mask):
    def change(x, mask):
        y = x * 2
        y[mask] = 5.0
        return y

    wanted = change(torch.ones(shape), torch.tensor(mask))
    changed = flow.nn.Graph.trace(change)
    assert changed(flow.ones(shape), flow.tensor(mask)).tolist() == wanted.tolist()


def test_a_slice_changes_with_the_tensor():
    x = flow.zeros(3, 2)
    y, z, copied = x[:], x[1], x[[1]]
    y += 1
    z += 1
    assert x.tolist() == y.tolist() == [[1.0, 1.0], [2.0, 2.0], [1.0, 1.0]]
    assert copied.tolist() == [[0.0, 0.0]]


def test_gradients_add_in_a_fixed_order():
    index = flow.tensor([1, 1, 1, 0])
    values = flow.tensor([1e8, 1.0, -1e8, 1.0])
    x = flow.zeros(2, requires_grad=True)
    (x[index] * values).sum().backward()
    assert x.grad.tolist() == [1.0, 0.0]  # (1e8 + 1) - 1e8 in float32


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (IndexError, lambda x: x[6]),
        (IndexError, lambda x: x[-7]),
        (IndexError, lambda x: x[0, 0, 0]),
        (IndexError, lambda x: x[..., ...]),
        (RuntimeError, lambda x: x[::-1]),
        (IndexError, lambda x: x[flow.tensor([True] * 5)]),
        (IndexError, lambda x: x[[0, 1], [0, 1, 2]]),
        (IndexError, lambda x: x[flow.ones(2)]),
        (TypeError, lambda x: x["a"]),
        (RuntimeError, lambda x: x.__setitem__(0, flow.ones(3))),
        (RuntimeError, lambda x: flow.narrow(x, 0, 4, 3)),
        (IndexError, lambda x: flow.select(x, 0, 6)),
        (RuntimeError, lambda x: flow.scatter(x, 0, flow.tensor([[0]]), flow.ones(1, 1).double())),
        (RuntimeError, lambda x: flow.scatter(x, 1, flow.zeros(7, 1).long(), 1.0)),
        (RuntimeError, lambda x: flow.index_add(x, 0, flow.tensor([0]), flow.ones(2, 4))),
        (ValueError, lambda x: flow.nn.functional.embedding(flow.tensor([0]), x, max_norm=1.0)),
        (ValueError, lambda x: flow.nn.functional.embedding(flow.tensor([0]), x, padding_idx=6)),
        (RuntimeError, lambda x: flow.one_hot(flow.tensor([4]), 3)),
        (RuntimeError, lambda x: flow.topk(x, 5)),
    ],
)
def test_errors(error, call):
    with pytest.raises(error) as caught:
        call(flow.ones(6, 4))
    assert isinstance(caught.value, flow.OnefoldError)


@pytest.mark.parametrize("sbp", [flow.sbp.split(0), flow.sbp.split(1), flow.sbp.broadcast])
@pytest.mark.parametrize("size", [2, 5, 9])
def test_nonzero_of_a_stated_size(world, sbp, size):
    values = torch.tensor([[0, 2, 0], [1, 0, 3], [0, 0, 4]])
    x = flow.tensor(values, placement=flow.placement("cpu", [0, 1]), sbp=sbp)
    wanted = torch.full((size, 2), -1)
    found = values.nonzero()[:size]
    wanted[: len(found)] = found
    np.testing.assert_array_equal(flow.nonzero(x, size=size).numpy(), wanted)

    class Places(flow.nn.Graph):
        def build(self, x):
            return flow.where(x > 0, size=size, fill_value=7)

    for rows, column in zip(Places()(x), wanted.unbind(1), strict=True):
        np.testing.assert_array_equal(rows.numpy(), torch.where(column < 0, 7, column))
    (one,) = flow.nonzero(flow.tensor(3.0), as_tuple=True, size=2)
    assert one.tolist() == [0, -1]


def test_a_count_that_a_graph_cannot_know(world):
    class Selected(flow.nn.Graph):
        def build(self, x):
            return flow.masked_select(x, x > 0)

    with pytest.raises(OnefoldRuntimeError, match=r"Give a bound, as in where\(mask, size=n\)"):
        Selected()(flow.ones(3))


@pytest.mark.parametrize(
    "index",
    [
        "None", "..., 0", "slice(None), None", "None, 1, ..., None", "..., None", "0, ...", "...",
        "..., slice(1, 3), -1", "None, None, 2", "slice(None), None, 1", "-1, ..., slice(0, 4, 3)",
        "()", "0, 1, ...", "..., 0, 1", "0, None, 1",
    ],
)  # fmt: skip
def test_new_dims_and_ellipses_are_read_as_torch_reads_them(index):
    values = torch.arange(24.0).reshape(4, 6)
    x = flow.from_torch(values.clone())
    at = eval(index)
    y = x[at]
    assert torch.equal(y.to_torch(), values[at])
    y.zero_()
    values[at].zero_()
    assert torch.equal(x.to_torch(), values)


@pytest.mark.parametrize(
    "index", ["0, 0, 0", "..., 0, 0, 0", "0, ..., 0, 0", "..., ..., 0", "9, None"]
)
def test_indices_that_torch_refuses_are_errors(index):
    with pytest.raises(IndexError):
        torch.zeros(4, 6)[eval(index)]
    with pytest.raises(IndexError):
        flow.zeros(4, 6)[eval(index)]


class _Count(TorchDispatchMode):
    """How many ops of torch run."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("expression", "more"),
    [
        ("x[i, j]", 0), ("x[:, i]", 0), ("x[k, :, j]", 0), ("x[m]", 4), ("x[:, n]", 3),
        ("x[[0, 2]]", 0), ("x[:, [-1]]", 0), ("x[[1, 0], [2, -3]]", 0),
        ("x[i, 1]", 0), ("x[0, j]", 0), ("x[i, :, 1:]", 0), ("x[1:, j]", 0),
        ("x.scatter(0, i[:, None, None], 1.0)", 0), ("t.bincount(i, minlength=4)", 0),
        ("t.nn.functional.one_hot(i, 4)", 0), ("x.index_put((i, j), x[0, :2])", 2),
    ],
)  # fmt: skip
def test_an_index_runs_the_ops_that_torch_runs(expression, more):
    value = torch.arange(60.0).reshape(SHAPE)
    found, counts = [], []
    for t, x in ((torch, value), (flow, flow.tensor(value))):
        i, j, k = t.tensor([3, 1]), t.tensor([0, 2]), t.tensor([[1], [4]])
        m = x[:, :, 0] % 2 == 0
        names = {"t": t, "x": x, "i": i, "j": j, "k": k, "m": m, "n": m[0]}
        eval(expression, names)  # the first call makes plans
        with _Count() as ops:
            y = eval(expression, names)
        found.append(y)
        counts.append(ops.count)
    assert torch.equal(found[1].to_torch(), found[0])
    assert counts[1] <= counts[0] + more


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "index",
    [
        "i, j", "slice(None), i", "k, slice(None), j", "m", "slice(None), m[0]", "m[:, 0]",
        "[0, 2]", "slice(None), [-1, 1]", "[1, 0], [2, -3]", "i, -1", "0, j", "n, n",
        "i, slice(1, 3)", "x > 30", "k.int(), j",
    ],
)  # fmt: skip
def test_gradients_of_what_is_indexed_are_those_of_torch(index, layout):
    value = torch.arange(60.0).reshape(SHAPE)
    grads = []
    for t, x in ((torch, value.clone()), (flow, make(value, layout))):
        like = {} if t is torch or layout is None else {"placement": layout[0], "sbp": B}
        i, j, k = (t.tensor(v, **like) for v in ([3, 1], [0, 2], [[1], [4]]))
        n = t.tensor([-1, -1], **like)
        names = {"x": x, "i": i, "j": j, "k": k, "n": n, "m": x[:, :, 0] % 2 == 0}
        at = eval(index, names)
        w, v = x.detach().requires_grad_(), (x * 2).requires_grad_()
        y = (w * 1.0).clone()
        y[at] = v[at] * v[at]
        ((y * w[at].sum()) ** 2).sum().backward()
        grads += [w.grad.numpy(), v.grad.numpy()]
    np.testing.assert_allclose(grads[2], grads[0], rtol=1e-5)
    np.testing.assert_allclose(grads[3], grads[1], rtol=1e-5)


def test_a_new_dim_is_one_view():
    x = flow.zeros(4, 6)
    assert base_of(x[None]) is x
    assert base_of(x[:, None]) is x


LOOKED_UP = [
    lambda i, j: (i,),
    lambda i, j: (slice(None), j),
    lambda i, j: (i, j),
    lambda i, j: (i[:, None], j),
    lambda i, j: (slice(None), i[:3], j[:3] - 2),
    lambda i, j: (i, slice(None), j - 3),
    lambda i, j: (-i - 1, j, j - 2),
    lambda i, j: (slice(None), slice(None), j - 2, i),
    lambda i, j: (i, j, j, i),
]


@pytest.mark.parametrize("size", [4, 50])
@pytest.mark.parametrize("index", LOOKED_UP)
def test_rows_by_so_many_indices(index, size):
    """From 50 on the places of a gradient are computed, of fewer looked up."""
    shape = (5, 4, 6, 5) if size == 4 else (size, 50, 6, 5)
    value = torch.arange(float(np.prod(shape))).reshape(shape)
    at = torch.tensor([0, 3, 1, 3]), torch.tensor([2, 3, 2, 3])
    found = []
    for lib, x, where in (
        (torch, value.clone(), at),
        (flow, flow.tensor(value), [flow.tensor(each) for each in at]),
    ):
        x.requires_grad_()
        place = index(*where)
        y = x[place]
        weight = lib.arange(float(y.numel())).reshape(y.shape) % 7
        (y * weight).sum().backward()
        z = x.detach().clone()
        z[place] = y.detach() * 2
        put = lib.index_put(x, tuple(where), x[tuple(where)].detach() * 3, accumulate=True)
        found.append([each.detach().numpy() for each in (y, x.grad, z, put)])
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("index", [(7, 1), (1, 4), (-6, 0), (0, -5)])
def test_rows_outside_are_errors_also_where_they_are_added(index):
    x = flow.zeros(5, 4)
    given = tuple([flow.tensor([0, each]) for each in index])
    with pytest.raises(IndexError, match="out of bounds"):
        x[given]
    with pytest.raises(IndexError, match="out of bounds"):
        flow.index_put(x, given, flow.ones(2), accumulate=True)
    with pytest.raises(IndexError, match="out of bounds"):
        x[given] = flow.ones(2)


def test_a_mask_leaves_a_small_tensor_its_own_memory():
    """A view for it would have every later write look for other owners of the memory."""
    x = flow.arange(12.0).reshape(3, 4).clone()
    mask = x > 4
    values = x[mask]
    x[mask] = values * 2
    assert not x.shared
    expected = np.arange(12.0).reshape(3, 4)
    expected[expected > 4] *= 2
    np.testing.assert_array_equal(x.numpy(), expected)
