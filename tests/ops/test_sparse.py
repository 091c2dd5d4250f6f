"""Sparse tensors in coordinate form against torch's: what programs of graph networks need."""

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.errors import OnefoldIndexError, OnefoldRuntimeError, OnefoldTypeError, ShapeError

pytestmark = pytest.mark.filterwarnings("ignore:.*[sS]parse:UserWarning")

INDICES = [[0, 1, 1, 3, 1], [2, 0, 2, 1, 0]]  # (1, 0) is there twice
VALUES = [1.0, 2.0, 3.0, 4.0, 5.0]
B, S = flow.sbp.broadcast, flow.sbp.split


def dense(x):
    """The value of a tensor of either library, sparse or not."""
    x = x.to_dense() if x.is_sparse else x
    return x.detach().numpy()


def sparse(lib, **options):
    return lib.sparse_coo_tensor(lib.tensor(INDICES), lib.tensor(VALUES), (4, 3), **options)


def matrix(lib, *shape):
    return lib.arange(int(np.prod(shape)), dtype=lib.float32).reshape(shape) / 7 - 1


def blocks(lib):
    """A sparse matrix of dense matrices."""
    return lib.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], matrix(lib, 3, 2, 4), (2, 3, 2, 4))


def vector(lib, values):
    return lib.sparse_coo_tensor([[3, 0, 1]], values[:3], (4,))


def of_places(lib, places, values):
    return lib.sparse_coo_tensor(lib.tensor(places, dtype=lib.int64), values)


CALLS = {
    "to_dense": lambda lib, x: x.to_dense(),
    "sparse.mm": lambda lib, x: lib.sparse.mm(x, matrix(lib, 3, 5)),
    "spmm": lambda lib, x: lib.spmm(x, matrix(lib, 3, 5)),
    "mm": lambda lib, x: lib.mm(x, matrix(lib, 3, 5)),
    "matmul": lambda lib, x: lib.matmul(x, matrix(lib, 3, 5)),
    "@": lambda lib, x: x @ matrix(lib, 3, 5),
    "@ vector": lambda lib, x: x @ matrix(lib, 3),
    "dense @": lambda lib, x: matrix(lib, 2, 4) @ x,
    "@ sparse": lambda lib, x: x @ x.t(),
    "t": lambda lib, x: x.t().coalesce(),
    "addmm": lambda lib, x: lib.sparse.addmm(
        matrix(lib, 4, 5), x, matrix(lib, 3, 5), beta=2, alpha=3
    ),
    "coalesced": lambda lib, x: x.coalesce(),
    "values": lambda lib, x: x.coalesce().values(),
    "indices": lambda lib, x: x.coalesce().indices(),
    "sum": lambda lib, x: lib.sparse.sum(x),
    "sum of rows": lambda lib, x: lib.sparse.sum(x, dim=1),
    "sum of columns": lambda lib, x: lib.sparse.sum(x, 0),
    "sum of both": lambda lib, x: lib.sparse.sum(x, (0, 1)),
    "softmax": lambda lib, x: lib.sparse.softmax(x, 1),
    "softmax of columns": lambda lib, x: lib.sparse.softmax(x, dim=0),
    "log_softmax": lambda lib, x: lib.sparse.log_softmax(x, 1),
    "number": lambda lib, x: -(2 * x / 4),
    "mul": lambda lib, x: x.coalesce() * matrix(lib, 4, 3),
    "+": lambda lib, x: x + x.coalesce() * 2,
    "dense +": lambda lib, x: matrix(lib, 4, 3) + x,
    "double": lambda lib, x: x.double(),
    "to": lambda lib, x: x.to("cpu").to(lib.float64),
    "from dense": lambda lib, x: x.to_dense().to_sparse(),
    "without values": lambda lib, x: lib.sparse_coo_tensor(
        lib.zeros(2, 0, dtype=lib.int64), lib.zeros(0), (2, 3)
    ),
    "of its places": lambda lib, x: lib.sparse_coo_tensor(x._indices(), x._values()),
    "blocks": lambda lib, x: lib.sparse_coo_tensor([[2, 0, 2]], matrix(lib, 3, 2), (4, 2)),
    "sum of blocks": lambda lib, x: lib.sparse.sum(
        lib.sparse_coo_tensor([[2, 0, 2]], matrix(lib, 3, 2), (4, 2)), 1
    ),
    "transposed blocks": lambda lib, x: blocks(lib).transpose(-3, 0),
    "softmax of blocks": lambda lib, x: lib.sparse.softmax(blocks(lib), 0),
    "log_softmax in blocks": lambda lib, x: lib.sparse.log_softmax(blocks(lib), -1),
    "softmax of a vector": lambda lib, x: lib.sparse.softmax(vector(lib, x._values()), 0),
    "t of a vector": lambda lib, x: vector(lib, x._values()).t(),
    "no sparse dims": lambda lib, x: lib.sparse_coo_tensor(
        lib.zeros(0, 5, dtype=lib.int64), x._values(), ()
    ),
    "addmm that does not read": lambda lib, x: lib.sparse.addmm(
        lib.full((4, 5), float("nan")), x, matrix(lib, 3, 5), beta=0
    ),
}

# Calls that torch refuses, too.
ERRORS = {
    "transposed into blocks": lambda lib: blocks(lib).transpose(-1, 0),
    "transposed blocks": lambda lib: blocks(lib).transpose(2, 3),
    "no such dim to transpose": lambda lib: sparse(lib).transpose(0, 2),
    "t of blocks": lambda lib: blocks(lib).t(),
    "no such dim to sum": lambda lib: lib.sparse.sum(sparse(lib), 2),
    "a dim to sum twice": lambda lib: lib.sparse.sum(sparse(lib), (0, -2)),
    "no such dim of softmax": lambda lib: lib.sparse.softmax(sparse(lib), 2),
    "too many sparse dims": lambda lib: lib.eye(3).to_sparse(3),
    "no sparse dims": lambda lib: lib.eye(3).to_sparse(0),
    "a negative index": lambda lib: of_places(lib, [[-1]], lib.ones(1)),
}


@pytest.mark.parametrize("name", CALLS)
def test_results_are_torchs(name):
    theirs, mine = (CALLS[name](lib, sparse(lib)) for lib in (torch, flow))
    assert mine.is_sparse == theirs.is_sparse and mine.dtype == theirs.dtype
    assert mine.shape == theirs.shape
    np.testing.assert_allclose(dense(mine), dense(theirs), 1e-6, 1e-6)


GRADIENTS = ["sparse.mm", "dense @", "to_dense", "values", "sum", "addmm", "number"]


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_torchs(name):
    """Of the values, of which torch's gradient is sparse, and of the dense factor."""
    grads = []
    for lib in (torch, flow):
        values = lib.tensor(VALUES, requires_grad=True)
        x = lib.sparse_coo_tensor(lib.tensor(INDICES), values, (4, 3))
        y = CALLS[name](lib, x)
        y = y.to_dense() if y.is_sparse else y
        (y * y).sum().backward()
        grads.append(values.grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-5)


def graph_network(lib, features, adjacency, weights):
    """Two layers of a graph network, with a sparse adjacency and sparse features."""
    degree = lib.sparse.sum(adjacency, dim=1).to_dense()
    scale = lib.diag(degree.clamp(min=1).rsqrt()).to_sparse()
    eye = lib.eye(len(adjacency))
    adjacency = (scale @ (eye + adjacency) @ scale).to_sparse()
    hidden = lib.spmm(adjacency, lib.mm(features.to_sparse(), weights[0])).relu()
    return lib.nn.functional.log_softmax(lib.sparse.mm(adjacency, hidden @ weights[1]), 1)


def network_loss(lib, place=lambda x: x):
    edges = lib.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])
    adjacency = place(lib.sparse_coo_tensor(edges, lib.ones(6), (5, 5)))
    weights = [place(matrix(lib, *shape)).detach().requires_grad_() for shape in ((3, 4), (4, 2))]
    loss = graph_network(lib, place(matrix(lib, 5, 3)).relu(), adjacency, weights)[:, 0].sum()
    loss.backward()
    return [loss.item(), *(w.grad.numpy() for w in weights)]


def test_a_graph_network():
    for mine, theirs in zip(network_loss(flow), network_loss(torch), strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-5, 1e-6)


@pytest.mark.parametrize("sbp", [B, S(0)])
def test_layouts(sbp, world):
    """Values that are split by their number give a partial sum; the result is the same."""
    p = flow.placement("cpu", [0, 1])
    x = sparse(flow).to_global(p, B).to_global(sbp=sbp)
    y = matrix(flow, 3, 5).to_global(p, B)
    for found in (x @ y, flow.mm(x, y), (y.t() @ x.t()).t()):
        np.testing.assert_allclose(
            found.numpy(), dense(sparse(torch) @ matrix(torch, 3, 5)), 1e-6, 1e-6
        )
    np.testing.assert_allclose(x.to_dense().numpy(), dense(sparse(torch)))


def test_in_a_graph(world):
    """Products and sums have shapes that do not depend on the places."""

    class Multiply(flow.nn.Graph):
        def build(self, indices, values, y):
            return flow.sparse.mm(flow.sparse_coo_tensor(indices, values, (4, 3)), y)

    given = flow.tensor(INDICES), flow.tensor(VALUES), matrix(flow, 3, 5)
    found = Multiply()(*given)
    np.testing.assert_allclose(
        found.numpy(), dense(sparse(torch) @ matrix(torch, 3, 5)), 1e-6, 1e-6
    )


def test_what_it_is():
    for lib in (torch, flow):
        x = sparse(lib, dtype=lib.float64, requires_grad=True)
        assert x.is_sparse and x.layout is lib.sparse_coo and x.dtype is lib.float64
        assert x.size() == (4, 3) and x.size(1) == 3 and x.dim() == x.ndim == 2 and len(x) == 4
        assert x._nnz() == 5 and x.coalesce()._nnz() == 4 and x.requires_grad
        assert not x.is_coalesced() and x.coalesce().is_coalesced()
        assert x.sparse_dim() == 2 and x.dense_dim() == 0 and x.numel() == 12
        assert "nnz=5" in repr(x) and str(x.device) == "cpu"
        old = lib.sparse.FloatTensor(lib.tensor(INDICES), lib.tensor(VALUES), lib.Size([4, 3]))
        np.testing.assert_array_equal(dense(old), dense(x))
        with pytest.raises(RuntimeError, match=r"Cannot get values on an uncoalesced tensor"):
            x.values()


@pytest.mark.parametrize("name", ERRORS)
def test_what_torch_refuses(name):
    with pytest.raises((RuntimeError, IndexError)):
        ERRORS[name](torch)
    with pytest.raises((RuntimeError, IndexError)):
        ERRORS[name](flow)


def test_errors():
    x = sparse(flow)
    with pytest.raises(ShapeError, match=r"3 columns but 4 rows"):
        x @ flow.ones(4, 2)
    with pytest.raises(ShapeError, match=r"values \(count"):
        flow.sparse_coo_tensor([[0, 1]], [1.0], (2,))
    with pytest.raises(ValueError, match="size must have 2 sparse dims"):
        flow.sparse_coo_tensor([[0], [1]], [1.0], (2,))
    with pytest.raises(OnefoldIndexError, match=r"outside of the size \(1, 2\)"):
        flow.sparse_coo_tensor([[1], [0]], [1.0], (1, 2), check_invariants=True)
    with pytest.raises(OnefoldTypeError, match=r"cannot be combined with str"):
        x * "a"
    with pytest.raises(OnefoldTypeError, match=r"must be an onefold Tensor.*SparseTensor"):
        flow.exp(x)
    with pytest.raises(OnefoldRuntimeError, match=r"use to_sparse\(\)"):
        flow.ones(2).coalesce()
