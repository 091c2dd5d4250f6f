"""Copies of views: `transpose_copy` and others; `select_scatter` and others write into a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any

from ...errors import OnefoldRuntimeError
from ..names import register_function, register_name
from ..out_tensors import OUT, OUTS, give_to, with_out
from ..tensor import Tensor
from .cast import clone
from .cat_split import chunk, split, split_with_sizes, unbind
from .data_movement import wrap
from .dims import diagonal, expand, permute, squeeze, t, transpose, unsqueeze
from .flip_repeat import unfold
from .slicing import narrow, select
from .view import view

Views = Callable[..., Tensor | tuple[Tensor, ...]]


def _as_copy(function: Views) -> Views:
    """The function that returns a copy of the result of `function`."""

    @wraps(function)
    def copied(
        *args: Any, out: Tensor | Sequence[Tensor] | None = None, **kwargs: Any
    ) -> Tensor | tuple[Tensor, ...]:
        if out is not None:
            return give_to(out, copied(*args, **kwargs))
        made = function(*args, **kwargs)
        return clone(made) if isinstance(made, Tensor) else tuple(map(clone, made))

    copied.__name__ = copied.__qualname__ = f"{function.__name__}_copy"
    several = "unbind" in copied.__name__ or "split" in copied.__name__
    vars(copied)["__signature__"] = with_out(
        signature(function, eval_str=True), OUTS if several else OUT
    )
    copied.__doc__ = f"What `{function.__name__}` gives, in memory of its own."
    return copied


_COPIED: tuple[Views, ...] = (
    diagonal, expand, narrow, permute, split_with_sizes, squeeze, t, transpose, unbind, unsqueeze,
)  # fmt: skip
for _function in _COPIED:
    _copied = _as_copy(_function)
    register_name(_copied.__name__, _copied)


@register_function
def alias_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """A copy of the tensor."""
    if out is not None:
        return give_to(out, alias_copy(input))
    return clone(input)


@register_function
def view_copy(input: Tensor, size: Sequence[int], *, out: Tensor | None = None) -> Tensor:
    """A copy of the result of the method `view`."""
    if out is not None:
        return give_to(out, view_copy(input, size))
    return clone(view(input, *size))


@register_function
def unfold_copy(
    input: Tensor, dimension: int, size: int, step: int, *, out: Tensor | None = None
) -> Tensor:
    """A copy of the result of the method `unfold`."""
    if out is not None:
        return give_to(out, unfold_copy(input, dimension, size, step))
    return clone(unfold(input, dimension, size, step))


register_name("unsafe_split", split)
register_name("unsafe_split_with_sizes", split_with_sizes)


@register_function
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`chunk`."""
    return chunk(input, chunks, dim)


def _written(input: Tensor, src: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
    """A copy of `input` in which the view `part` has the values of `src`."""
    made = clone(input)
    view = part(made)
    if view.shape != src.shape:
        raise OnefoldRuntimeError(
            "expected src to have a size equal to the slice of self. "
            f"src size = {list(src.shape)}, slice size = {list(view.shape)}"
        )
    view.copy_(src)
    return made


@register_function
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy of `input` in which `src` is the diagonal."""
    return _written(input, src, lambda x: diagonal(x, offset, dim1, dim2))


@register_function
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of `input` in which `src` is the slice at one index of a dim."""
    return _written(input, src, lambda x: select(x, dim, index))


@register_function
def slice_scatter(
    input: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """A copy of `input` in which `src` is a slice along a dim."""
    if out is not None:
        return give_to(out, slice_scatter(input, src, dim, start, end, step))
    dim = wrap(dim, input.ndim)
    return _written(input, src, lambda x: x[(slice(None),) * dim + (slice(start, end, step),)])
