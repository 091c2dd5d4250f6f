"""Batching rules of matrix products: the rows are a batch dim, or more rows of a matrix."""

from __future__ import annotations

from math import prod
from typing import Any

from ..engine.meta import Shape
from ..engine.ops.arithmetic import add, mul
from ..engine.ops.einsum import LETTERS
from ..engine.ops.matmul import linear, matmul, product_nt, product_tn
from ..engine.ops.reduce import sum
from ..engine.ops.view import view
from ..engine.tensor import Tensor
from .batched_call import BatchedCall, NoRule, Results, Rule

_FORMS = {
    "mm": "nn", "bmm": "nn", "mv": "nn", "dot": "nn", "matmul": "nn",
    "mm_nt": "nt", "matmul_nt": "nt", "mm_tn": "tn", "matmul_tn": "tn",
}  # fmt: skip
_PRODUCTS = {"nn": matmul, "nt": product_nt, "tn": product_tn}


def _product(call: BatchedCall) -> Results:
    """A product of vectors, matrices or batches of them, as one of batches."""
    form = _FORMS[call.op.name]
    ndims = [row.ndim for row in call.rows]
    if form != "nn" and min(ndims) < 2:
        raise NoRule
    batch = max(2, *ndims)
    operands = []
    for index, (row, mapped) in enumerate(zip(call.rows, call.mapped, strict=True)):
        shape = tuple(row.shape)
        if row.ndim == 1:
            shape = (*shape, 1) if index else (1, *shape)
        if mapped:
            shape = (call.size, *[1] * (batch - len(shape)), *shape)
        operands.append(_as(call.slots[index], shape))
    return call.whole(_PRODUCTS[form](*operands))


def _as(x: Tensor, shape: Shape) -> Tensor:
    return x if x.shape == shape else view(x, shape)


def _rows(call: BatchedCall, index: int) -> Tensor:
    """A tensor as a matrix per row, or as one matrix."""
    row = call.rows[index]
    shape = (prod(row.shape[:-1]), row.shape[-1])
    return _as(call.slots[index], (call.size, *shape) if call.mapped[index] else shape)


def _linear(call: BatchedCall) -> Results:
    x, w, bias = call.slots
    of_x, of_w = call.rows[:2]
    if of_w.ndim != 2 or not of_x.ndim:
        raise NoRule
    if not call.mapped[1] and not call.mapped[2]:
        return linear(x, w, bias)
    if call.mapped[1]:
        y = product_nt(_rows(call, 0), w)
    else:
        y = linear(x, w)
        if not call.mapped[0]:
            y = view(y, (1, *y.shape))
    outs = of_w.shape[0]
    if bias is not None:
        if call.rows[2].shape != (outs,):
            raise NoRule
        if call.mapped[2]:
            bias = view(bias, (call.size, *[1] * (y.ndim - 2), outs))
        y = add(y, bias)
    return call.whole(y)


def _rows_tn(call: BatchedCall) -> Results:
    return product_tn(_rows(call, 0), _rows(call, 1))


def _sum_rows(call: BatchedCall) -> Results:
    dims = tuple(range(1, call.rows[0].ndim))
    x: Tensor = call.slots[0]
    return sum(x, dims) if dims else x


def _outer(call: BatchedCall) -> Results:
    a, b = call.slots
    a = view(a, (*a.shape, 1))
    b = view(b, (*b.shape[:-1], 1, b.shape[-1]))
    return mul(a, b)


def _contraction(call: BatchedCall) -> Results:
    equation: str = call.attrs.equation
    spare = next(letter for letter in LETTERS if letter not in equation)
    terms, out = equation.split("->")
    given: list[Any] = terms.split(",")
    named = [spare * rows + term for term, rows in zip(given, call.mapped, strict=True)]
    return call.run(call.slots, f"{','.join(named)}->{spare}{out}")


RULES: dict[str, Rule] = {
    **dict.fromkeys(_FORMS, _product),
    "linear": _linear,
    "rows_tn": _rows_tn,
    "sum_rows": _sum_rows,
    "outer": _outer,
    "contraction": _contraction,
}
