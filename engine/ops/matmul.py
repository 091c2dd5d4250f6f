"""Matrix products: mm, bmm, mv, dot, matmul and linear, with transposed forms for gradients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import torch

from ...errors import ShapeError
from ...kernels import matmul_ref as kernels, reduce_ref as sums
from ..dispatcher import binary, ternary, unary
from ..meta import Meta
from ..names import register_function, register_name
from ..op import Kernel, Local, NoAttributes, Op
from ..sbp import broadcast, partial_sum, split
from ..signature import Axis, Rule, Signature, from_spec
from ..tensor import Tensor
from .arithmetic import add, mul
from .dims import expand, squeeze, unsqueeze
from .pointwise import conj_of
from .reduce import sum_to

Shape = tuple[int, ...]


@lru_cache(maxsize=4096)
def product_spec(a: Shape, b: Shape, form: str = "nn") -> str:
    """The spec of a product of operands of these shapes, with broadcasting batch dims.

    `form` has a letter per operand: "t" where its last two dims are swapped.

    >>> product_spec((5, 2, 3), (3, 4))
    'b0 m k, k n -> b0 m n'
    """
    rows = ["k", "m"] if form[0] == "t" else ["m", "k"]
    columns = ["n", "k"] if form[1] == "t" else ["k", "n"]
    left = ["k"] if len(a) == 1 else rows
    right = ["k"] if len(b) == 1 else columns
    batch_a, batch_b = a[:-2], b[:-2]
    count = max(len(batch_a), len(batch_b))
    out = [f"b{i}" for i in range(count)]
    # A dim of size 1 that stands against a larger one is not split with it: it is broadcast.
    own_a = _batch_letters(batch_a, batch_b, count, "u")
    own_b = _batch_letters(batch_b, batch_a, count, "v")
    out += [letter for letter in "mn" if letter in left + right]
    return f"{' '.join(own_a + left)}, {' '.join(own_b + right)} -> {' '.join(out)}"


def _batch_letters(mine: Shape, other: Shape, count: int, alone: str) -> list[str]:
    letters = []
    for i in range(count - len(mine), count):
        size = mine[i - count + len(mine)]
        against = other[i - count + len(other)] if i >= count - len(other) else 1
        # A starred letter must stay whole.
        letters.append(f"{alone}{i}*" if size == 1 and against != 1 else f"b{i}")
    return letters


def _own_or_triton(op: Product | Linear | Outer, local: Local) -> Kernel:
    """The Triton kernel of the reference, or else the op's kernel: torch's function with no
    call around.
    """
    chosen = local.pick(op.reference)
    return op.kernel if chosen is op.reference else chosen


class Product(Op):
    """y[..., m, n] = sum over k of a[..., m, k] * b[..., k, n], operands transposed by `form`."""

    attributes = NoAttributes
    linear = "each"

    def __init__(self, reference: Kernel, form: str = "nn", kernel: Kernel | None = None) -> None:
        self.name = reference.__name__
        self.reference = reference
        self.kernel = kernel or reference  # type: ignore[method-assign]
        self.form = form

    def bind(self, local: Local, attrs: NoAttributes) -> Kernel:
        return _own_or_triton(self, local)

    @property
    def depends_on_position(self) -> bool:
        return False

    def rule(self, axis: Axis, a: Meta, b: Meta) -> Rule:
        return from_spec(product_spec(tuple(a.shape), tuple(b.shape), self.form), self.linear)

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        a = inputs[0]
        assert a is not None
        inner = a.shape[-2 if self.form[0] == "t" and a.ndim > 1 else -1]
        return 2.0 * outputs[0].numel * inner

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, a: Tensor, b: Tensor) -> Any:
        if dy.meta.dtype.is_complex:
            a, b = conj_of(a), conj_of(b)
        if len(a.meta.shape) == 2 and len(b.meta.shape) == 2:
            nn, nt, tn = mm, mm_nt, mm_tn
        elif len(a.meta.shape) == 1 or len(b.meta.shape) == 1:
            return _vector_vjp(needs, dy, a, b)
        elif self.form == "nn" and len(b.meta.shape) == 2:
            return needs[0] and product_nt(dy, b), needs[1] and rows_tn(a, dy)
        else:
            nn, nt, tn = _matmul, product_nt, product_tn
        da: Any
        db: Any
        if self.form == "nn":
            da, db = needs[0] and nt(dy, b), needs[1] and tn(a, dy)
        elif self.form == "nt":
            da, db = needs[0] and nn(dy, b), needs[1] and tn(dy, a)
        else:
            da, db = needs[0] and nt(b, dy), needs[1] and nn(a, dy)
        if nn is mm:
            return da, db
        return sum_to(da, a.meta) if needs[0] else None, sum_to(db, b.meta) if needs[1] else None


def _vector_vjp(needs: Sequence[object], dy: Tensor, a: Tensor, b: Tensor) -> Any:
    """The gradients when an operand is a vector: those of the product with a dim of size 1 more."""
    if a.ndim == 1:
        dy = unsqueeze(dy, -1 if b.ndim == 1 else -2)
    if b.ndim == 1:
        dy = unsqueeze(dy, -1)
    row = unsqueeze(a, 0) if a.ndim == 1 else a
    column = unsqueeze(b, 1) if b.ndim == 1 else b
    da = sum_to(product_nt(dy, column), row.meta) if needs[0] else None
    db = sum_to(product_tn(row, dy), column.meta) if needs[1] else None
    if da is not None and a.ndim == 1:
        da = squeeze(da, 0)
    if db is not None and b.ndim == 1:
        db = squeeze(db, 1)
    return da, db


class RowsProduct(Op):
    """y[m, n] = sum over all leading dims of a[..., m] * b[..., n]: the gradient of a weight."""

    name = "rows_tn"
    attributes = NoAttributes
    linear = "each"

    kernel = staticmethod(kernels.rows_tn)

    def rule(self, axis: Axis, a: Meta, b: Meta) -> Rule:
        rows = " ".join(f"r{i}" for i in range(a.ndim - 1))
        return from_spec(f"{rows} m, {rows} n -> m n", self.linear)

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        a = inputs[0]
        assert a is not None
        return 2.0 * outputs[0].numel * prod(a.shape[:-1])

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, a: Tensor, b: Tensor) -> Any:
        if dy.meta.dtype.is_complex:
            a, b = conj_of(a), conj_of(b)
        return needs[0] and product_nt(b, dy), needs[1] and _matmul(a, dy)


class RowsSum(Op):
    """y[n] = sum over all leading dims of x[..., n]: the gradient of a bias."""

    name = "sum_rows"
    attributes = NoAttributes
    linear = "all"
    saves = ()
    kernel = staticmethod(sums.sum_rows)

    def rule(self, axis: Axis, x: Meta) -> Rule:
        rows = " ".join(f"r{i}" for i in range(x.ndim - 1))
        return from_spec(f"{rows} n -> n", self.linear)

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, x: Meta) -> Any:
        return (expand(dy, x.shape),)


class Outer(Op):
    """y[m, n] = a[m] * b[n]"""

    name = "outer"
    attributes = NoAttributes
    spec = "m, n -> m n"
    linear = "each"
    reference = staticmethod(kernels.outer)
    kernel = staticmethod(torch.outer)  # type: ignore[assignment]

    def bind(self, local: Local, attrs: NoAttributes) -> Kernel:
        return _own_or_triton(self, local)

    @property
    def depends_on_position(self) -> bool:
        return False

    def vjp(self, needs: Sequence[object], dy: Tensor, y: Meta, a: Tensor, b: Tensor) -> Any:
        if dy.meta.dtype.is_complex:
            a, b = conj_of(a), conj_of(b)
        return needs[0] and matmul(dy, b), needs[1] and matmul(a, dy)


class Linear(Op):
    """y[..., n] = sum over k of x[..., k] * w[n, k], plus bias[n]"""

    name = "linear"
    attributes = NoAttributes
    reference = staticmethod(kernels.linear)
    kernel = staticmethod(torch._C._nn.linear)
    saves = (0, 1)

    def bind(self, local: Local, attrs: NoAttributes) -> Kernel:
        return _own_or_triton(self, local)

    @property
    def depends_on_position(self) -> bool:
        return False

    def rule(self, axis: Axis, x: Meta, w: Meta, bias: Meta | None) -> Rule:
        rule = _linear_rule(x.ndim, w.ndim)
        if bias is None:
            return [Signature(each.inputs[:2], each.outputs) for each in rule]
        if bias.shape != w.shape[:-1]:  # torch lets it broadcast; then it must be whole
            return [each for each in rule if each.inputs[2] is broadcast]
        return rule

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        w = inputs[1]
        assert w is not None
        return 2.0 * outputs[0].numel * w.shape[-1]

    def vjp(
        self, needs: Sequence[object], dy: Tensor, y: Meta, x: Tensor, w: Tensor, bias: Meta | None
    ) -> Any:
        if dy.meta.dtype.is_complex:
            x, w = conj_of(x), conj_of(w)
        if len(x.meta.shape) == 2 and len(w.meta.shape) == 2:
            dx = mm(dy, w) if needs[0] else None
            dw = mm_tn(dy, x) if needs[1] else None
        elif len(x.meta.shape) == 1 or len(w.meta.shape) == 1:
            dx, dw = _vector_linear_vjp(needs, dy, x, w)
        else:
            dx = _matmul(dy, w) if needs[0] else None
            dw = rows_tn(dy, x) if needs[1] else None
        if bias is None or not needs[2]:
            return dx, dw
        if len(bias.shape) == 1 and dy.meta.shape[-1] == bias.shape[0]:
            return dx, dw, sum_rows(dy)
        return dx, dw, sum_to(dy, bias)


def _vector_linear_vjp(needs: Sequence[object], dy: Tensor, x: Tensor, w: Tensor) -> Any:
    if w.ndim == 1:
        return _vector_vjp(needs, dy, x, w)
    return needs[0] and matmul(dy, w), needs[1] and outer(dy, x)


@lru_cache
def _linear_rule(ndim: int, w_ndim: int) -> tuple[Signature, ...]:
    """The layouts of linear with a bias, by the number of dims of x and of the weight."""
    last = ndim - 1
    found = [_signature(split(i), broadcast, broadcast, split(i)) for i in range(last)]
    if w_ndim == 2:
        found.append(_signature(broadcast, split(0), split(0), split(last)))
    found += [
        _signature(split(last), split(w_ndim - 1), partial_sum, partial_sum),
        _signature(partial_sum, broadcast, partial_sum, partial_sum),
        _signature(broadcast, partial_sum, partial_sum, partial_sum),
    ]
    return tuple(found)


def _signature(*sbps: Any) -> Signature:
    return Signature(sbps[:3], sbps[3:])


mm = register_name("mm", binary(Product(kernels.mm, kernel=torch.mm)))
mm_nt = register_name("mm_nt", binary(Product(kernels.mm_nt, "nt", torch._C._nn.linear)))
mm_tn = register_name("mm_tn", binary(Product(kernels.mm_tn, "tn")))
_matmul = binary(Product(kernels.matmul, kernel=torch.matmul))
product_nt = binary(Product(kernels.matmul_nt, "nt"))
product_tn = binary(Product(kernels.matmul_tn, "tn"))
bmm = register_name("bmm", binary(Product(kernels.bmm, kernel=torch.bmm)))
mv = register_name("mv", binary(Product(kernels.mv, kernel=torch.mv)))
dot = register_name("dot", binary(Product(kernels.dot, kernel=torch.dot)))
rows_tn = register_name("rows_tn", binary(RowsProduct()))
sum_rows = register_name("sum_rows", unary(RowsSum()))
outer = register_name("outer", binary(Outer()))
_linear = ternary(Linear())


@register_function
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product of two tensors, as torch.matmul: vectors, matrices, batches of them.

    Rows, columns and batch dims may be split; a split contracted dim gives partial sums. Raises
    an error when the contracted dims differ.

    Example: `matmul(x, w)` with x of shape (5, 2, 3) and w (3, 4) has shape (5, 2, 4).
    """
    return _matmul(input, other)


@register_function
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`input @ weight.T + bias`, as torch.nn.functional.linear, for input of any number of dims.

    Weight split(0) makes a column-parallel layer (output split in its last dim), weight split(1)
    a row-parallel one (output partial). Raises an error when the shapes do not fit.

    Example: `linear(x, w, b)` with x (8, 3), w (4, 3) and b (4,) has shape (8, 4).
    """
    return _linear(input, weight, bias)


@register_function
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """`beta * input + alpha * (mat1 @ mat2)` for matrices; input broadcasts to the product."""
    return _added(input, mm(mat1, mat2), beta, alpha)


@register_function
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta * input + alpha * (mat @ vec)`; input broadcasts to the product."""
    return _added(input, mv(mat, vec), beta, alpha)


@register_function
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """`beta * input + alpha * (batch1 @ batch2)` for batches; input broadcasts to the product."""
    return _added(input, bmm(batch1, batch2), beta, alpha)


def _added(input: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    if torch.broadcast_shapes(input.shape, product.shape) != product.shape:
        raise ShapeError(
            f"input of shape {tuple(input.shape)} does not broadcast to the product's shape "
            f"{tuple(product.shape)}"
        )
    if alpha != 1:
        product = mul(product, alpha)
    if beta == 0:  # torch then ignores the input, NaN included
        return product
    scaled = input if beta == 1 else mul(input, beta)
    return add(scaled, product)
