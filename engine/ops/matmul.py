"""Matrix products: mm, bmm, mv, dot, matmul and linear, with transposed forms for gradients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import torch

from ...errors import ShapeError
from ...kernels import epilogue_ref as epilogues, matmul_ref as kernels, reduce_ref as sums
from ...kernels.common_shapes import broadcast_shapes
from ...kernels.pointwise_chain_ref import At, Chain, Link
from ...kernels.pointwise_ref import cast as cast_kernel
from ..argument_errors import with_argument_errors
from ..argument_types import NumberLike
from ..cached_cast import is_cached_cast, wider_dtype
from ..dispatcher import binary, ternary, unary
from ..meta import Meta, Shape
from ..names import register_as, register_function, register_name
from ..op import Gradients, Kernel, Local, Needs, NoAttributes, Op, Order, required
from ..out_tensors import give_to
from ..saved_values import Saves
from ..sbp import broadcast
from ..signature import Axis, Rule, from_spec, with_bias
from ..tensor import Tensor
from .arithmetic import add, mul
from .cast import CastAttributes, cast, factor_of, is_half
from .dims import expand, squeeze, unsqueeze
from .pointwise import Entry, conj_of
from .reduce import sum, sum_to
from .result_shapes import FLOATS, alike, multiplied


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


# Of the products that take operands of some numbers of dims only.
_NDIMS = {
    "mm": (2, 2), "mm_nt": (2, 2), "mm_tn": (2, 2), "bmm": (3, 3), "mv": (2, 1), "dot": (1, 1),
}  # fmt: skip


def _batch_letters(mine: Shape, other: Shape, count: int, alone: str) -> list[str]:
    letters = []
    for i in range(count - len(mine), count):
        size = mine[i - count + len(mine)]
        against = other[i - count + len(other)] if i >= count - len(other) else 1
        # A starred letter must stay whole.
        letters.append(f"{alone}{i}*" if size == 1 and against != 1 else f"b{i}")
    return letters


class MatrixOp(Op):
    """A product. The Triton kernel is that of `reference`; else `kernel`, torch's own, runs."""

    attributes = NoAttributes
    depends_on_position = False
    order: Order = "always"
    linear = "each"
    saves: Saves = ((1,), (0,))
    reference: Kernel

    def bind(self, local: Local, attrs: NoAttributes) -> Kernel:
        bound = local.bind(self.reference)
        return self.kernel if bound.kernel is self.reference else bound


class Product(MatrixOp):
    """y[..., m, n] = sum over k of a[..., m, k] * b[..., k, n], operands transposed by `form`."""

    def __init__(self, reference: Kernel, form: str = "nn", kernel: Kernel | None = None) -> None:
        self.name = reference.__name__
        self.reference = reference
        self.kernel = kernel or reference
        self.form = form

    @staticmethod
    @with_argument_errors
    def matmul(
        a: Tensor,
        b: Tensor,
        out: Tensor | None,
        transpose_a: bool | None,
        transpose_b: bool | None,
        alpha: NumberLike | None,
    ) -> Tensor:
        """The product with OneFlow's options."""
        if transpose_a and transpose_b:
            a = a.transpose(-1, -2)
        product = product_nt if transpose_b else product_tn if transpose_a else matmul
        y = product(a, b) if alpha is None or alpha == 1 else mul(product(a, b), alpha)
        return y if out is None else give_to(out, y)

    with_options = matmul

    def deduce(self, a: Meta, b: Meta) -> Meta | None:
        if not alike(a, b) or _NDIMS.get(self.name) not in (None, (a.ndim, b.ndim)):
            return None
        if self.name == "bmm" and a.shape[0] != b.shape[0]:
            return None
        shape = multiplied(a.shape, b.shape, self.form)
        return None if shape is None else a.like(shape)

    def rule(self, axis: Axis, a: Meta, b: Meta) -> Rule:
        return from_spec(product_spec(tuple(a.shape), tuple(b.shape), self.form), self.linear)

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        a = required(inputs[0])
        inner = a.shape[-2 if self.form[0] == "t" and a.ndim > 1 else -1]
        return 2.0 * outputs[0].numel * inner

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor) -> Gradients:
        if dy.meta.dtype.is_complex:
            a, b = conj_of(a), conj_of(b)
        form = self.form
        if len(a.meta.shape) == 2 and len(b.meta.shape) == 2:
            nn, nt, tn = mm, mm_nt, mm_tn
        elif len(a.meta.shape) == 1 or len(b.meta.shape) == 1:
            return _vector_vjp(needs, dy, a, b)
        elif form == "nn" and len(b.meta.shape) == 2:
            da = needs[0] and _as_wanted(product_nt, needs[0], dy, b)
            return da, needs[1] and _as_wanted(rows_tn, needs[1], a, dy)
        else:
            nn, nt, tn = matmul, product_nt, product_tn
        da = db = None
        wanted = needs if nn is mm else (None, None)  # others are summed over batch dims first
        if needs[0]:
            product = nn if form == "nt" else nt
            da = _as_wanted(product, wanted[0], *((b, dy) if form == "tn" else (dy, b)))
        if needs[1]:
            product = nn if form == "tn" else tn
            db = _as_wanted(product, wanted[1], *((dy, a) if form == "nt" else (a, dy)))
        if nn is not mm:
            da = None if da is None else sum_to(da, a.meta)
            db = None if db is None else sum_to(db, b.meta)
        return da, db


def _as_wanted(product: Entry, need: object, a: Tensor, b: Tensor) -> Tensor:
    """A product that is a gradient, in the dtype that a cached cast requires.

    In graphs there are none of these, and casts are fused.
    """
    widened = WIDENED.get(product) if is_cached_cast(need) else None
    return product(a, b) if widened is None else widened(a, b, wider_dtype(need))


def _vector_vjp(needs: Needs, dy: Tensor, a: Tensor, b: Tensor) -> Gradients:
    """The gradients if an operand is a vector: those of the product with one more dim of size 1."""
    if a.ndim == 1:
        dy = unsqueeze(dy, -1 if b.ndim == 1 else -2)
    if b.ndim == 1:
        dy = unsqueeze(dy, -1)
    da = db = None
    if needs[0]:
        da = product_nt(dy, unsqueeze(b, 1) if b.ndim == 1 else b)
        da = _as_vector(da, a, 0) if a.ndim == 1 else sum_to(da, a.meta)
    if needs[1]:
        db = product_tn(unsqueeze(a, 0) if a.ndim == 1 else a, dy)
        db = _as_vector(db, b, 1) if b.ndim == 1 else sum_to(db, b.meta)
    return da, db


def _as_vector(grad: Tensor, vector: Tensor, dim: int) -> Tensor:
    """The gradient of a vector, from that of a matrix with one more dim of size 1."""
    size = vector.shape[0]
    wanted = grad.meta.like((size, 1) if dim else (1, size), vector.dtype)
    return squeeze(sum_to(grad, wanted), dim)


def _rows(x: Meta) -> str:
    """The dims before the last as letters of a spec."""
    return " ".join(f"r{i}" for i in range(x.ndim - 1))


class RowsProduct(MatrixOp):
    """y[m, n] = sum over all leading dims of a[..., m] * b[..., n]: the gradient of a weight."""

    name = "rows_tn"
    reference = staticmethod(kernels.rows_tn)
    kernel = staticmethod(kernels.rows_tn)

    def deduce(self, a: Meta, b: Meta) -> Meta | None:
        if not alike(a, b) or min(a.ndim, b.ndim) < 2 or a.shape[:-1] != b.shape[:-1]:
            return None
        return a.like((a.shape[-1], b.shape[-1]))

    def rule(self, axis: Axis, a: Meta, b: Meta) -> Rule:
        return from_spec(f"{_rows(a)} m, {_rows(a)} n -> m n", self.linear)

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        return 2.0 * outputs[0].numel * prod(required(inputs[0]).shape[:-1])

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor) -> Gradients:
        if dy.meta.dtype.is_complex:
            a, b = conj_of(a), conj_of(b)
        return needs[0] and product_nt(b, dy), needs[1] and matmul(a, dy)


class Widened(Op):
    """A product, rounded to the dtype of its operands and written in a wider one.

    So the gradient of what was cast needs no cast of its own.
    """

    attributes = CastAttributes
    depends_on_position = False
    order: Order = "always"
    saves = ((1,), (0,))

    def __init__(self, product: Product | RowsProduct) -> None:
        super().__init__(f"{product.name}_widened")
        self.product = product

    def kernel(self, a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        made: torch.Tensor = self.product.reference(a, b)
        return made.to(dtype)

    def deduce(self, a: Meta, b: Meta, attrs: CastAttributes) -> Meta | None:
        made = self.product.deduce(a, b)
        if made is None or not isinstance(attrs.dtype, torch.dtype):
            return None
        return made.like(dtype=attrs.dtype)

    def rule(self, axis: Axis, a: Meta, b: Meta, attrs: CastAttributes) -> Rule:
        return self.product.rule(axis, a, b)

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        return self.product.flops(inputs, outputs)

    def bind(self, local: Local, attrs: CastAttributes) -> Kernel:
        chain = Chain(1, (Link(cast_kernel, (At(0), attrs.dtype)),), (1,))
        picked = local.pick(epilogues.with_epilogue)
        return local.around(picked, picked(self.product.reference, 2, chain, False))

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor, attrs: CastAttributes
    ) -> Gradients:
        return self.product.vjp(needs, cast(dy, a.meta.dtype), y, a, b)


class RowsSum(Op):
    """y[n] = sum over all leading dims of x[..., n]: the gradient of a bias."""

    name = "sum_rows"
    attributes = NoAttributes
    order = "always"
    saves = ()
    kernel = staticmethod(sums.sum_rows)

    def deduce(self, x: Meta) -> Meta | None:
        return x.like(x.shape[-1:]) if x.ndim and x.dtype in FLOATS else None

    def rule(self, axis: Axis, x: Meta) -> Rule:
        return from_spec(f"{_rows(x)} n -> n", "all")

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, x: Meta) -> Gradients:
        return (expand(dy, x.shape),)


class Outer(MatrixOp):
    """y[m, n] = a[m] * b[n]"""

    name = "outer"
    order = "row-major"
    spec = "m, n -> m n"
    reference = staticmethod(kernels.outer)
    kernel = staticmethod(torch.outer)

    def deduce(self, a: Meta, b: Meta) -> Meta | None:
        return a.like((*a.shape, *b.shape)) if alike(a, b) and a.ndim == b.ndim == 1 else None

    def vjp(self, needs: Needs, dy: Tensor, y: Meta, a: Tensor, b: Tensor) -> Gradients:
        if dy.meta.dtype.is_complex:
            a, b = conj_of(a), conj_of(b)
        return needs[0] and matmul(dy, b), needs[1] and matmul(a, dy)


class Linear(MatrixOp):
    """y[..., n] = sum over k of x[..., k] * w[n, k], plus bias[n]"""

    name = "linear"
    order = "row-major"
    reference = staticmethod(kernels.linear)
    kernel = staticmethod(torch._C._nn.linear)
    saves: Saves = ((1,), (0,), ())

    def deduce(self, x: Meta, w: Meta, bias: Meta | None) -> Meta | None:
        if not alike(x, w, bias) or not x.ndim or w.ndim != 2 or x.shape[-1] != w.shape[1]:
            return None
        outs = w.shape[:1]
        return x.like((*x.shape[:-1], *outs)) if bias is None or bias.shape == outs else None

    def rule(self, axis: Axis, x: Meta, w: Meta, bias: Meta | None) -> Rule:
        rows, outs = _rows(x), "n" if w.ndim == 2 else ""
        rule: Rule = from_spec(f"{rows} k, {outs} k -> {rows} {outs}", self.linear)
        if bias is None:
            return rule
        rule = with_bias(rule, x.ndim - 1)
        if bias.shape != w.shape[:-1]:  # torch lets it broadcast; then it must be whole
            return [each for each in rule if each.inputs[2] is broadcast]
        return rule

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        return 2.0 * outputs[0].numel * required(inputs[1]).shape[-1]

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, x: Tensor, w: Tensor, bias: Meta | None
    ) -> Gradients:
        if dy.meta.dtype.is_complex:
            x, w = conj_of(x), conj_of(w)
        dx: object
        dw: object
        if len(x.meta.shape) == 2 and len(w.meta.shape) == 2:
            dx = needs[0] and _as_wanted(mm, needs[0], dy, w)
            dw = needs[1] and _as_wanted(mm_tn, needs[1], dy, x)
        elif len(w.meta.shape) == 1:
            dx, dw = _vector_vjp(needs, dy, x, w)
        elif len(x.meta.shape) == 1:
            dx, dw = needs[0] and matmul(dy, w), needs[1] and outer(dy, x)
        else:
            dx = needs[0] and _as_wanted(matmul, needs[0], dy, w)
            dw = needs[1] and _as_wanted(rows_tn, needs[1], dy, x)
        if bias is None or not needs[2]:
            return dx, dw
        if len(bias.shape) == 1 and dy.meta.shape[-1] == bias.shape[0]:
            wide, lead = wider_dtype(needs[2]), tuple(range(dy.ndim - 1))
            if wide is None or not lead:  # a sum over no dims is one over all
                return dx, dw, sum_rows(dy)
            return dx, dw, sum(dy, lead, dtype=wide)
        return dx, dw, sum_to(dy, bias)


mm = register_name("mm", binary(Product(kernels.mm, kernel=torch.mm), "mat2", out=True))
mm_nt = register_name("mm_nt", binary(Product(kernels.mm_nt, "nt", torch._C._nn.linear)))
mm_tn = register_name("mm_tn", binary(Product(kernels.mm_tn, "tn")))
matmul = register_as(
    "matmul",
    binary(
        Product(kernels.matmul, kernel=torch.matmul),
        out=True,
        options=("transpose_a", "transpose_b", "alpha"),
    ),
    """The matrix product of two tensors, as torch.matmul: vectors, matrices, batches of them.

    As in OneFlow, `transpose_a` and `transpose_b` swap the last dims of one of them first, and the
    product is multiplied by `alpha`.

    Rows, columns and batch dims may be split; a split contracted dim gives partial sums. Raises
    an error when the contracted dims differ.

    Example: `matmul(x, w)` with x of shape (5, 2, 3) and w (3, 4) has shape (5, 2, 4).
    """,
)
product_nt = binary(Product(kernels.matmul_nt, "nt"))
product_tn = binary(Product(kernels.matmul_tn, "tn"))
bmm = register_name("bmm", binary(Product(kernels.bmm, kernel=torch.bmm), "mat2", out=True))
mv = register_name("mv", binary(Product(kernels.mv, kernel=torch.mv), "vec", out=True))
dot = register_name("dot", binary(Product(kernels.dot, kernel=torch.dot), "tensor", out=True))
rows_tn = register_name("rows_tn", binary(RowsProduct()))
WIDENED: dict[Entry, Entry] = {
    mm: binary(Widened(Product(kernels.mm))),
    mm_nt: binary(Widened(Product(kernels.mm_nt, "nt"))),
    mm_tn: binary(Widened(Product(kernels.mm_tn, "tn"))),
    matmul: binary(Widened(Product(kernels.matmul))),
    product_nt: binary(Widened(Product(kernels.matmul_nt, "nt"))),
    rows_tn: binary(Widened(RowsProduct())),
}
sum_rows = register_name("sum_rows", unary(RowsSum()))
outer = register_name("outer", binary(Outer(), "vec2", out=True))
_linear = ternary(Linear())


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
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """`beta * input + alpha * (mat1 @ mat2)` for matrices; input broadcasts to the product."""
    if out is not None:
        return give_to(out, addmm(input, mat1, mat2, beta=beta, alpha=alpha))
    return added(input, mm(mat1, mat2), beta, alpha)


@register_function
def addmv(
    input: Tensor,
    mat: Tensor,
    vec: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """`beta * input + alpha * (mat @ vec)`; input broadcasts to the product."""
    if out is not None:
        return give_to(out, addmv(input, mat, vec, beta=beta, alpha=alpha))
    return added(input, mv(mat, vec), beta, alpha)


@register_function
def baddbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """`beta * input + alpha * (batch1 @ batch2)` for batches; input broadcasts to the product."""
    if out is not None:
        return give_to(out, baddbmm(input, batch1, batch2, beta=beta, alpha=alpha))
    return added(input, bmm(batch1, batch2), beta, alpha)


def added(input: Tensor, product: Tensor, beta: NumberLike, alpha: NumberLike) -> Tensor:
    """`beta * input + alpha * product`, in the product's shape, and in its dtype if that is half.

    Then mixed precision made the product so, and the sum is to be like it.
    """
    if broadcast_shapes(input.shape, product.shape) != product.shape:
        raise ShapeError(
            f"input of shape {tuple(input.shape)} does not broadcast to the product's shape "
            f"{tuple(product.shape)}"
        )
    if is_half(product.dtype):
        input = cast(input, product.dtype)
    alpha, beta = (factor_of(factor, input, product) for factor in (alpha, beta))
    if alpha != 1:
        product = mul(product, alpha)
    if beta == 0:  # torch then ignores the input, NaN included
        return product
    scaled = input if beta == 1 else mul(input, beta)
    return add(scaled, product)
