"""Sparse tensors in coordinate form, whose indices and values are ordinary tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import torch

from ...errors import OnefoldRuntimeError, OnefoldTypeError, ShapeError
from ..argument_types import DeviceLike, Number
from ..names import register_name
from ..tensor import Tensor, tensor_ops
from .data_movement import wrap, wrap_all

_NUMBERS = (int, float, complex)


class SparseTensor:
    """A tensor of which only some elements, or blocks of elements, are kept; the others are 0.

    `indices` (sparse dims, count) holds the places of `values` (count, *dense dims); values at the
    same place are added. It is not a Tensor: products with matrices, sums, `to_dense` and the other
    methods are ordinary ops of the two tensors, with their layouts and gradients. Made by
    `flow.sparse_coo_tensor` and `x.to_sparse()`.
    """

    is_sparse = True
    is_sparse_csr = False
    layout = torch.sparse_coo
    # Results of functions and operators of which an argument is sparse, by their names.
    op_overrides: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __init__(
        self, indices: Tensor, values: Tensor, shape: Sequence[int], coalesced: bool = False
    ) -> None:
        self._index, self._value = indices, values
        self.shape = torch.Size(shape)
        self._coalesced = coalesced or indices.shape[1] < 2

    # What it is.

    @property
    def dtype(self) -> torch.dtype:
        return self._value.dtype

    @property
    def device(self) -> torch.device:
        return cast("torch.device", self._value.device)

    @property
    def requires_grad(self) -> bool:
        return bool(self._value.requires_grad)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def T(self) -> SparseTensor:
        return self.t()

    def size(self, dim: int | None = None) -> torch.Size | int:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return self.ndim

    def numel(self) -> int:
        return self.shape.numel()

    def sparse_dim(self) -> int:
        return self._index.shape[0]

    def dense_dim(self) -> int:
        return self.ndim - self.sparse_dim()

    def is_coalesced(self) -> bool:
        """Whether no place is there twice, and places are in order."""
        return self._coalesced

    def _nnz(self) -> int:
        return self._index.shape[1]

    def _indices(self) -> Tensor:
        return self._index

    def _values(self) -> Tensor:
        return self._value

    def indices(self) -> Tensor:
        """The places; raises OnefoldRuntimeError before `coalesce`."""
        return self._checked("indices")._index

    def values(self) -> Tensor:
        """The elements that are kept; raises OnefoldRuntimeError before `coalesce`."""
        return self._checked("values")._value

    def _checked(self, name: str) -> SparseTensor:
        if not self._coalesced:
            raise OnefoldRuntimeError(
                f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first"
            )
        return self

    def __repr__(self) -> str:
        return (
            f"sparse_coo_tensor(indices={self._index!r}, values={self._value!r}, "
            f"size={tuple(self.shape)}, nnz={self._nnz()})"
        )

    def __len__(self) -> int:
        return self.shape[0]

    # The same places with other values.

    def _with(self, values: Tensor) -> SparseTensor:
        return SparseTensor(self._index, values, self.shape, self._coalesced)

    def to(self, *args: Any, **kwargs: Any) -> SparseTensor:
        """With tensors on another device, or values of another dtype."""
        values = self._value.to(*args, **kwargs)
        moved = SparseTensor(self._index, values, self.shape, self._coalesced)
        if values.device != self._index.device:
            moved._index = self._index.to(values.device)
        return moved

    def to_global(self, *args: Any, **kwargs: Any) -> SparseTensor:
        """With both tensors laid out so; a split of dim 0 splits the elements that are kept."""
        places = self._index.t().to_global(*args, **kwargs).t()
        values = self._value.to_global(*args, **kwargs)
        return SparseTensor(places, values, self.shape, self._coalesced)

    def cuda(self, device: DeviceLike | None = None) -> SparseTensor:
        return self.to("cuda" if device is None else device)

    def cpu(self) -> SparseTensor:
        return self.to("cpu")

    def float(self) -> SparseTensor:
        return self.to(torch.float32)

    def double(self) -> SparseTensor:
        return self.to(torch.float64)

    def half(self) -> SparseTensor:
        return self.to(torch.float16)

    def long(self) -> SparseTensor:
        return self.to(torch.int64)

    def detach(self) -> SparseTensor:
        return self._with(self._value.detach())

    def clone(self) -> SparseTensor:
        return self._with(self._value.clone())

    def requires_grad_(self, requires_grad: bool = True) -> SparseTensor:
        self._value.requires_grad_(requires_grad)
        return self

    # Other places.

    def t(self) -> SparseTensor:
        """The transposed matrix; a vector stays as it is."""
        if self.sparse_dim() > 2 or self.dense_dim():
            raise OnefoldRuntimeError(
                "t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got "
                f"{self.sparse_dim()} sparse and {self.dense_dim()} dense dimensions"
            )
        return self if self.ndim < 2 else self.transpose(0, 1)

    def transpose(self, dim0: int, dim1: int) -> SparseTensor:
        """With two of the sparse dims exchanged."""
        order, shape = list(range(self.sparse_dim())), list(self.shape)
        dim0, dim1 = wrap(dim0, self.ndim), wrap(dim1, self.ndim)
        if max(dim0, dim1) >= len(order):
            raise OnefoldRuntimeError(
                f"transpose: both dims must be sparse, but got {dim0} and {dim1} of a tensor with "
                f"{len(order)} sparse dims, which are the first"
            )
        for each in (order, shape):
            each[dim0], each[dim1] = each[dim1], each[dim0]
        return SparseTensor(self._index[order], self._value, shape)

    def coalesce(self) -> SparseTensor:
        """With each place once, in order. Their number depends on the places: not in graphs."""
        if self._coalesced:
            return self
        flat, inverse = tensor_ops.unique(self._flat_places(), return_inverse=True)
        count, sizes = flat.shape[0], self.shape[: self.sparse_dim()]
        values = self._value.new_zeros((count, *self._value.shape[1:]))
        places, left = [], flat
        for size in reversed(sizes):
            places.append(left % size)
            left = tensor_ops.div(left, size, rounding_mode="floor")
        return SparseTensor(
            tensor_ops.stack(places[::-1]),
            values.index_add(0, inverse, self._value),
            self.shape,
            True,
        )

    def _flat_places(self) -> Tensor:
        """The number of each place, if the sparse dims were one."""
        if not self.sparse_dim():
            return self._index.new_zeros((self._nnz(),))
        flat = self._index[0]
        for index, size in zip(self._index[1:], self.shape[1 : self.sparse_dim()], strict=True):
            flat = flat * size + index
        return flat

    def to_dense(self) -> Tensor:
        """The tensor with all its zeros."""
        count = self.shape[: self.sparse_dim()].numel()
        zeros = self._value.new_zeros((count, *self._value.shape[1:]))
        dense: Tensor = zeros.index_add(0, self._flat_places(), self._value).reshape(self.shape)
        return dense

    def to_sparse(self) -> SparseTensor:
        return self

    def sum(self, dim: int | Sequence[int] | None = None) -> Any:
        """The sum of all elements, or over some sparse dims: a sparse tensor of the others."""
        if dim is None:
            return self._value.sum()
        gone = wrap_all(dim, self.ndim)
        if len(set(gone)) < len(gone):
            raise OnefoldRuntimeError(
                f"sum: a dim appears multiple times in the list of dims {dim}"
            )
        kept = [each for each in range(self.sparse_dim()) if each not in gone]
        inner = [each - self.sparse_dim() + 1 for each in gone if each >= self.sparse_dim()]
        values = self._value.sum(inner) if inner else self._value
        shape = [size for each, size in enumerate(self.shape) if each not in gone]
        if not kept:
            return values.sum(0)
        return SparseTensor(self._index[kept], values, shape).coalesce()

    # Arithmetic.

    def __neg__(self) -> SparseTensor:
        return self._with(-self._value)

    def __mul__(self, other: object) -> SparseTensor:
        return mul(self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Number) -> SparseTensor:
        return self._with(self._value / other)

    def __add__(self, other: object) -> Any:
        return add(self, other)

    __radd__ = __add__

    def __sub__(self, other: object) -> Any:
        return add(self, -cast("Any", other))

    def __matmul__(self, other: object) -> Any:
        return mm(self, other)

    def mm(self, mat2: object) -> Any:
        return mm(self, mat2)

    matmul = mm


def mm(mat1: Any, mat2: Any) -> Any:
    """The product of two matrices, of which one at least is sparse.

    It is dense, unless both are sparse. A dense vector counts as a matrix with one column.
    """
    if not isinstance(mat1, SparseTensor):
        if not isinstance(mat2, SparseTensor):
            return tensor_ops.mm(mat1, mat2)
        return mm(mat2.t(), mat1.t()).t()
    if isinstance(mat2, SparseTensor):
        return to_sparse(mm(mat1, mat2.to_dense()))
    if mat1.ndim != 2 or mat1.dense_dim() or mat2.ndim not in (1, 2):
        raise ShapeError(
            "sparse.mm takes a sparse matrix and a matrix or vector, but got the shapes "
            f"{tuple(mat1.shape)} and {tuple(mat2.shape)}"
        )
    if mat1.shape[1] != mat2.shape[0]:
        raise ShapeError(
            f"sparse.mm: {tuple(mat1.shape)} and {tuple(mat2.shape)} cannot be multiplied: "
            f"{mat1.shape[1]} columns but {mat2.shape[0]} rows"
        )
    rows, columns = mat1._index[0], mat1._index[1]
    factors = mat1._value if mat2.ndim == 1 else mat1._value.unsqueeze(1)
    addends = mat2.index_select(0, columns) * factors
    return addends.new_zeros((mat1.shape[0], *mat2.shape[1:])).index_add(0, rows, addends)


def mul(input: Any, other: Any) -> SparseTensor:
    """A sparse tensor times a number, or times a dense tensor of its shape, at its places."""
    if not isinstance(input, SparseTensor):
        input, other = other, input
    if isinstance(other, SparseTensor):
        other = other.to_dense()
    if isinstance(other, Tensor) and other.ndim:
        places = tuple(input._index)
        whole: Tensor = other.expand(input.shape)
        other = whole[places]
    elif not isinstance(other, (Tensor, *_NUMBERS)):
        raise _not_for("mul", other)
    return cast("SparseTensor", input._with(input._value * other))


def add(input: Any, other: Any, *, alpha: Number = 1) -> Any:
    """The sum of two sparse tensors, which is sparse, or of a sparse and a dense one."""
    if alpha != 1:
        other = other * alpha
    if isinstance(input, SparseTensor) and isinstance(other, SparseTensor):
        if input.shape != other.shape:
            raise ShapeError(
                f"add: expected two sparse tensors of the same shape, but got "
                f"{tuple(input.shape)} and {tuple(other.shape)}"
            )
        return SparseTensor(
            tensor_ops.cat([input._index, other._index], 1),
            tensor_ops.cat([input._value, other._value], 0),
            input.shape,
        )
    sparse, dense = (input, other) if isinstance(input, SparseTensor) else (other, input)
    if not isinstance(dense, Tensor):
        raise _not_for("add", dense)
    return dense + sparse.to_dense()


def _not_for(name: str, other: object) -> OnefoldTypeError:
    return OnefoldTypeError(
        f"{name}: a sparse tensor cannot be combined with {type(other).__name__}; call "
        ".to_dense() first"
    )


def to_sparse(input: Tensor, sparse_dim: int | None = None) -> SparseTensor:
    """The elements that are not 0, of which there may be any number: not in graphs.

    With `sparse_dim` the first dims are sparse, and blocks of the others are kept.
    """
    count = input.ndim if sparse_dim is None else sparse_dim
    if not min(1, input.ndim) <= count <= input.ndim:
        raise OnefoldRuntimeError(
            f"to_sparse: sparse_dim must be in [{min(1, input.ndim)}, {input.ndim}], the number of "
            f"dims, but got {sparse_dim}"
        )
    known: Any = input if count == input.ndim else (input != 0).flatten(count).any(-1)
    places = tensor_ops.nonzero(known)
    values = input[tuple(places.t())]
    return SparseTensor(places.t(), values, input.shape, True)


def _group(sparse: SparseTensor, dim: int) -> tuple[Tensor, int]:
    """The number of each place but for one sparse dim, and how many there may be."""
    others = [each for each in range(sparse.sparse_dim()) if each != dim]
    places = SparseTensor(sparse._index[others], sparse._value, [sparse.shape[x] for x in others])
    return places._flat_places(), places.numel()


def log_softmax(input: SparseTensor, dim: int) -> SparseTensor:
    """The logarithm of the softmax over the elements that are kept along a dim."""
    sparse, dim = input.coalesce(), wrap(dim, input.ndim)
    values = sparse._value
    if dim >= sparse.sparse_dim():
        return sparse._with(tensor_ops.log_softmax(values, dim - sparse.sparse_dim() + 1))
    group, count = _group(sparse, dim)
    inner = values.shape[1:]
    lowest = values.detach().new_full((count, *inner), -float("inf"))
    rows = group.reshape(-1, *[1] * len(inner)).expand(values.shape) if inner else group
    most = lowest.scatter_reduce(0, rows, values.detach(), "amax")[group]
    shifted = values - most
    sums = values.new_zeros((count, *inner)).index_add(0, group, shifted.exp())
    return sparse._with(shifted - sums.log()[group])


SparseTensor.op_overrides.update(
    {"mm": mm, "matmul": mm, "mul": mul, "add": add, "sub": lambda a, b: add(a, -b)}
)
register_name("to_sparse", to_sparse)
register_name("to_sparse_coo", to_sparse)
