"""Shapes of results by arithmetic: None for arguments that torch must judge, or refuses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import torch

from ..argument_types import Dims
from ..meta import Meta, Shape

Ints: TypeAlias = tuple[int, ...]

# The dtypes that torch's functions take everywhere.
FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
INTEGERS = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8})
REALS = FLOATS | INTEGERS
COMPLEX = frozenset({torch.complex64, torch.complex128})
COMMON = REALS | COMPLEX | {torch.bool}


def alike(*metas: Meta | None, dtypes: Iterable[torch.dtype] = FLOATS) -> bool:
    """Whether all present tensors have the same dtype, which is one of these."""
    found = {meta.dtype for meta in metas if meta is not None}
    return len(found) == 1 and found.issubset(dtypes)


def summed(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums and products of elements of a dtype."""
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.int64


def holds(dtype: torch.dtype, number: object) -> bool:
    """Whether a real number can be converted to this dtype, even if it is rounded or overflows.

    >>> holds(torch.float32, 3), holds(torch.int8, 300), holds(torch.int8, 3.0)
    (True, False, False)
    """
    if dtype in INTEGERS and type(number) is int:
        limits = torch.iinfo(dtype)
        return limits.min <= number <= limits.max
    return type(number) is bool or (dtype in FLOATS and type(number) in (int, float))


def are_ints(*values: object) -> bool:
    """Whether these are ints, or tuples of ints. A bool is not an int."""
    return all(type(v) is int or (isinstance(v, tuple) and are_ints(*v)) for v in values)


def are_bools(*values: object) -> bool:
    """Whether these are bools."""
    return all(type(value) is bool for value in values)


def is_dim(dim: object, ndim: int) -> bool:
    """Whether it is an int in the range of the dims; without dims those of one dim are allowed."""
    size = max(ndim, 1)
    return type(dim) is int and -size <= dim < size


def reduced(shape: Shape, dim: Dims | None, keepdim: object) -> Shape | None:
    """A shape less these dims (None and (): all), or with 1 in their place.

    >>> reduced((2, 3, 4), (0, -1), False), reduced((2, 3), 1, True), reduced((2, 3), 2, True)
    ((3,), (2, 1), None)
    """
    ndim = len(shape)
    dims = range(ndim) if dim is None or dim == () else (dim,) if isinstance(dim, int) else dim
    if not are_bools(keepdim) or not all(is_dim(d, ndim) for d in dims):
        return None
    gone = {d % max(ndim, 1) for d in dims}
    if len(gone) != len(dims):
        return None
    if keepdim:
        return tuple([1 if d in gone else size for d, size in enumerate(shape)])
    return tuple([size for d, size in enumerate(shape) if d not in gone])


def broadcast_shape(a: Shape, b: Shape) -> Shape | None:
    """The shape to which two broadcast.

    >>> broadcast_shape((2, 1), (3,)), broadcast_shape((2,), (3,))
    ((2, 3), None)
    """
    ndim = max(len(a), len(b))
    pairs = zip((1,) * (ndim - len(a)) + tuple(a), (1,) * (ndim - len(b)) + tuple(b), strict=True)
    found = []
    for m, n in pairs:
        if m != n and 1 not in (m, n):
            return None
        found.append(n if m == 1 else m)
    return tuple(found)


def multiplied(a: Shape, b: Shape, form: str = "nn") -> Shape | None:
    """The shape of a product of vectors, matrices and batches of them.

    `form` has a letter per operand: "t" where its last two dims are swapped.

    >>> multiplied((5, 2, 3), (3, 4)), multiplied((3, 2), (3, 4), "tn"), multiplied((3,), (3,))
    ((5, 2, 4), (2, 4), ())
    """
    if not a or not b or (form != "nn" and min(len(a), len(b)) < 2):
        return None
    left = a[::-1][:2] if form[0] == "t" else a[-2:]
    right = b[::-1][:2] if form[1] == "t" else b[-2:]
    batch = broadcast_shape(a[:-2], b[:-2])
    if batch is None or left[-1] != right[0]:
        return None
    return (*batch, *left[:-1], *right[1:])


def convolved(
    x: Shape, w: Shape, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int,
) -> Shape | None:  # fmt: skip
    """The shape of a convolution of a non-empty input.

    >>> convolved((8, 3, 32), (16, 3, 5), (2,), (1,), (1,), False, (0,), 1)
    (8, 16, 15)
    """
    dims = len(x) - 2
    sizes = (stride, padding, dilation, output_padding)
    if not 1 <= dims <= 3 or len(w) != len(x) or any(len(size) != dims for size in sizes):
        return None
    if 0 in x or 0 in w or not are_ints(*sizes, groups) or not are_bools(transposed):
        return None
    if min(*stride, *dilation, groups) < 1 or min(*padding, *output_padding) < 0:
        return None
    channels, outs = (w[0], w[1] * groups) if transposed else (w[1] * groups, w[0])
    if x[1] != channels or w[0] % groups:
        return None
    found = [x[0], outs]
    for n, k, s, p, d, more in zip(x[2:], w[2:], *sizes, strict=True):
        span = d * (k - 1) + 1 - 2 * p  # of a window, less the padding
        if transposed:
            if more >= max(s, d):
                return None
            found.append((n - 1) * s + span + more)
        else:
            if more or n < span:
                return None
            found.append((n - span) // s + 1)
    return tuple(found) if min(found) > 0 else None


def pooled(
    x: Shape, planes: int,
    size: Ints, stride: Ints, padding: Ints, dilation: Ints | None, ceil_mode: object,
) -> Shape | None:  # fmt: skip
    """The shape of pooled planes that are not empty: one element for each window.

    >>> pooled((8, 3, 7, 7), 2, (2, 2), (2, 2), (0, 0), None, True)
    (8, 3, 4, 4)
    """
    lead = _before_planes(x, planes)
    dilation = (1,) * planes if dilation is None else dilation
    if lead is None or not are_ints(size, stride, padding, dilation) or not are_bools(ceil_mode):
        return None
    if min(*size, *stride, *dilation) < 1 or min(padding) < 0:
        return None
    found = []
    for n, k, s, p, d in zip(x[len(lead) :], size, stride, padding, dilation, strict=True):
        span = d * (k - 1) + 1
        rest = n + 2 * p - span
        if p > k // 2 or rest < 0 or (planes == 3 and n < k):
            return None
        count = (rest + (s - 1 if ceil_mode else 0)) // s + 1
        if ceil_mode and (count - 1) * s >= n + p:  # a window that would begin after the input
            count -= 1
        found.append(count)
    return (*lead, *found)


def adaptively_pooled(x: Shape, planes: int, size: Ints) -> Shape | None:
    """The shape of a given number of windows of planes that are not empty."""
    lead = _before_planes(x, planes)
    if lead is None or not are_ints(size) or len(size) != planes or min(size) < 1:
        return None
    return (*lead, *size)


def unpooled(x: Shape, planes: int, size: Ints, stride: Ints, padding: Ints) -> Shape | None:
    """The smallest shape of planes with these windows."""
    lead = _before_planes(x, planes)
    if lead is None or not are_ints(size, stride, padding):
        return None
    sizes = zip(x[len(lead) :], size, stride, padding, strict=True)
    found = [(n - 1) * s - 2 * p + k for n, k, s, p in sizes]
    return (*lead, *found) if min(*stride, *found) > 0 else None


def _before_planes(x: Shape, planes: int) -> Shape | None:
    """The dims of batch and channels, or channels, of planes with elements."""
    if type(planes) is not int or planes not in (1, 2, 3) or len(x) - planes not in (1, 2):
        return None
    return None if 0 in x else x[:-planes]


def contracted(a: Shape, b: Shape, equation: str) -> Shape | None:
    """The shape of the einsum of two operands, each letter with one size.

    >>> contracted((2, 3), (3, 4), "ij,jk->ki"), contracted((2, 3), (4, 4), "ij,jk->ki")
    ((4, 2), None)
    """
    terms, out = equation.split("->")
    of_a, of_b = terms.split(",")
    if len(of_a) != len(a) or len(of_b) != len(b):
        return None
    sizes = dict(zip(of_a + of_b, (*a, *b), strict=True))
    ordinary = len(set(of_a)) == len(a) and len(set(of_b)) == len(b) and set(out) <= set(sizes)
    if not ordinary or any(sizes[letter] != n for letter, n in zip(of_a, a, strict=True)):
        return None
    return tuple([sizes[letter] for letter in out])


def fits_index(index: Shape, x: Shape, dim: int) -> bool:
    """Whether an index is no larger than its tensor in all dims except this one."""
    return (
        len(index) == len(x) > 0
        and is_dim(dim, len(x))
        and all(n <= m for d, (n, m) in enumerate(zip(index, x, strict=True)) if d != dim % len(x))
    )
