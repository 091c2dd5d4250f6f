"""In-place methods: the tensor takes a new value and keeps its placement, sbp and dtype.

The base of a view, and the views of a base, change with it; see `view_writes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

import torch
from numpy import ndarray

from ..errors import MixedTensorsError, OnefoldRuntimeError, OnefoldTypeError, ShapeError
from ..kernels.formatted import in_format_of
from ..kernels.memory_format_ref import CHANNELS_LAST, dense_copy, format_of, is_alike
from . import interpreter
from .argument_types import Layout, Number
from .autograd_tape import Node
from .captures import shards_of
from .commit import Change, each
from .convert import box
from .grad_mode import no_grad
from .names import names, register_function, register_name
from .op import Gradients, Needs
from .own_memory import write_everywhere, write_item, write_result
from .own_shards import is_sole_owner, own_tuple
from .sbp import broadcast, without_partial
from .tensor import Shards, Tensor, from_shards, tensor_ops
from .view_memory import forget_output
from .view_writes import check_change, set_value, write
from .views import has_links, leave, snapshot


@register_function
def assign_result(self: Tensor, name: str, *args: object, **kwargs: object) -> Tensor:
    """`self` takes the result of the op `name` on it, as in `x.add_(y)`.

    Raises AutogradError for a leaf that requires grad, ShapeError or OnefoldRuntimeError when the
    result does not fit; then `self` is as it was.
    """
    check_change(self, f"{name}_")
    if write_result(self, name, args, kwargs):
        return self
    result = _computed(self, name, args, kwargs)
    if result.meta is self.meta:
        return replace(self, result)
    return assign(self, result, f"{name}_")


register_name("check_change", check_change)


def _computed(x: Tensor, name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> Tensor:
    """The result of the op `name` on the value that the tensor has now."""
    old = snapshot(x)
    args = [old if arg is x else arg for arg in args]
    result: Tensor = getattr(names, name)(old, *args, **kwargs)
    return result


@register_function
def set_result(self: Tensor, result: Tensor, what: str) -> Tensor:
    """`self` takes a result of its shape and dtype; raises as `assign_result` does."""
    check_change(self, what)
    return replace(self, result) if result.meta is self.meta else assign(self, result, what)


def replace(self: Tensor, result: Tensor) -> Tensor:
    """`self` takes the value and the place on the tape of a tensor laid out alike."""
    if result.shared:
        result = _copied(result)
    if self.shared and has_links(self):
        write(self, result, interpreter.is_grad_enabled())
        return self
    forget_output(self.node)
    if (current := interpreter.get_current()) is not None:
        current.before_change(self)
    elif not isinstance(self.shards, tuple):
        shards_of(self)  # which a capture of another thread puts back when it ends
    self.shards = result.shards
    self.shared = result.shared
    self.version = interpreter.stamp()
    if interpreter.is_grad_enabled():
        self.node = result.node
    return self


def assign(self: Tensor, result: Tensor, what: str) -> Tensor:
    """`self` takes the value of `result`, laid out as `self` is."""
    if result.shape != self.shape:
        raise ShapeError(
            f"{what}: the result has shape {tuple(result.shape)}, which doesn't match the "
            f"tensor's shape {tuple(self.shape)}; an in-place operation keeps the shape"
        )
    if result.dtype != self.dtype:
        if not torch.can_cast(result.dtype, self.dtype):
            raise OnefoldRuntimeError(
                f"{what}: result type {result.dtype} can't be cast to the tensor's type "
                f"{self.dtype}; use the out-of-place form"
            )
        result = names.cast(result, self.dtype)
    if result.meta is not self.meta:
        result = box(result, self.meta) if self.is_global else names.to(result, self.device)
    _check_made(result)
    result = formatted_as(result, self)
    result.shared = True
    return replace(self, result)


class _Overwritten:
    """The op on the tape of a tensor all of whose elements were replaced."""

    name = "overwrite"

    def vjp(self, needs: Needs, dy: Tensor, y: object, *args: object) -> Gradients:
        """Zeros for the old value, as in torch; the new value gets the gradient."""
        return needs[0] and names.zeros_like(dy), dy


_OVERWRITTEN = _Overwritten()


def overwrite(self: Tensor, result: Tensor, what: str) -> Tensor:
    """`assign` for a result of which no element depends on `self`, which keeps requiring grad."""
    if self.node is not None and interpreter.is_grad_enabled() and result.shape == self.shape:
        parents = (self.node, result.node)
        node = Node(_OVERWRITTEN, parents, (), None, result.meta)
        result.shared = True
        result = from_shards(result.shards, result.meta, node)
    return assign(self, result, what)


def take(self: Tensor, value: Tensor) -> None:
    """Give `self` the shards of a tensor laid out alike, outside the tape."""
    assert value.meta is self.meta
    _check_made(value)
    value.shared = True
    value = _copied(value)
    if self.shared and has_links(self):
        write(self, value, False)
    else:
        set_value(self, value, False, interpreter.stamp())


def _copied(value: Tensor) -> Tensor:
    """Another tensor with the same value, history and (shared) memory."""
    made = from_shards(own_tuple(value.shards), value.meta, value.node)
    made.shared = True
    return made


def become(self: Tensor, value: Tensor) -> None:
    """Take a value of any shape, dtype and layout, outside the tape; no view of `self` follows."""
    leave(self)
    self.meta = value.meta
    take(self, value)


def note_written(tensors: Sequence[Tensor]) -> list[Change]:
    """Update versions, bases and views after writes into the memory of tensors off the tape."""
    linked = [tensor for tensor in tensors if tensor.shared and has_links(tensor)]
    values = [snapshot(tensor) for tensor in linked]  # some may be views of one base
    for tensor, value in zip(linked, values, strict=True):
        write(tensor, value, False)
    return [each(setattr, tensors, repeat("version"), repeat(interpreter.stamp()))]


_is_contiguous = torch.Tensor.is_contiguous


def writable(x: Tensor) -> None:
    """Give the tensor dense memory that it shares with no other, unless it has such memory.

    It stays in its memory format; where it is in none, it will be in row-major order.
    """
    shards = x.shards
    one = len(shards) == 1
    dense = shards[0].is_contiguous() if one else all(map(_is_contiguous, shards))
    dense = dense or None not in map(format_of, shards)
    del shards  # a reference to them, of which there are others if `x` is not the sole owner
    if not dense or (x.shared and (has_links(x) or not is_sole_owner(x))):
        x.shards = dense_copies(x.shards)
        x.shared = has_links(x)  # then they follow, when it is written
    elif x.shared:
        x.shared = False


def dense_copies(shards: Shards) -> Shards:
    """Copies of the shards in their memory formats; equal shards share one copy."""
    unique = {id(part): dense_copy(part) for part in shards}
    return tuple([unique[id(part)] for part in shards])


def formatted_as(x: Tensor, target: Tensor) -> Tensor:
    """A value in the memory format of a tensor of its shape and layout, outside the tape."""
    shards: object = x.shards
    if len(x.meta.shape) not in CHANNELS_LAST or type(shards) is not tuple or not target.shards:
        return x
    if len(shards) == 1 and shards[0].is_contiguous() and target.shards[0].is_contiguous():
        return x
    pairs = list(zip(x.shards, target.shards, strict=True))
    if all(is_alike(part, like) for part, like in pairs):
        return x
    unique = {id(part): in_format_of(part, like) for part, like in pairs}
    made = from_shards(tuple([unique[id(part)] for part in x.shards]), x.meta, x.node)
    made.shared = True
    return made


def _check_made(value: Tensor) -> None:
    """Raise OnefoldRuntimeError for a tensor left over from a capture, which has no shards."""
    if interpreter.get_current() is None:
        iter(value.shards)


@no_grad
def fitted(value: object, target: Tensor) -> Tensor:
    """`value` in the dtype, layout and memory format of `target`; for loading.

    Torch tensors, arrays and numbers are taken as logical values. So are local tensors for a global
    one: their shape must be the whole one. Raises ShapeError for another shape, MixedTensorsError
    for a global value of a local tensor, unless this process holds it whole.
    """
    if isinstance(value, Tensor) and value.is_global != target.is_global and _is_whole(value):
        value = value.shards[0].detach()
    if not isinstance(value, Tensor):
        layout: Layout = {"device": target.meta.device}
        if target.is_global:
            layout = {"placement": target.placement, "sbp": without_partial(target.sbp)}
        value = tensor_ops.tensor(value, dtype=target.dtype, **layout)
    if value.is_global != target.is_global:
        raise MixedTensorsError(
            f"the tensor is local but the given value is global, {value.meta!r}, of which this "
            "process holds a part; convert one of them with to_global or to_local"
        )
    if value.shape != target.shape:
        raise ShapeError(
            f"size mismatch: the tensor has {tuple(target.shape)}, the value {tuple(value.shape)}"
        )
    if value.dtype != target.dtype:
        value = tensor_ops.cast(value, target.dtype)
    if target.is_local:
        value = tensor_ops.to(value, target.device)
    return formatted_as(box(value, target.meta), target)


def _is_whole(x: Tensor) -> bool:
    """Whether this process holds the whole value."""
    return bool(x.shards) and all(sbp.is_broadcast for sbp in x.meta.nd_sbp)


def apply_inplace(
    function: Callable[..., Tensor], input: Tensor, *args: Any, **kwargs: Any
) -> Tensor:
    """Give `input` the result of a function of it; it is not written where that is itself."""
    result = _changed(function, input, args, kwargs)
    return input if result is None else set_result(input, result, function.__name__)


def _changed(
    function: Callable[..., Tensor], x: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Tensor | None:
    """The result of a function of the value that `x` has now, unless that is itself the result."""
    old = snapshot(x)  # the op keeps the old value for its gradient
    result = function(old, *args, **kwargs)
    return None if result is old else result


def _of_array(value: ndarray, like: Tensor) -> Tensor:
    """The logical value in an array, where another tensor is."""
    where: Layout = {"device": like.device} if like.is_local else {"placement": like.placement}
    if like.is_global:
        where["sbp"] = (broadcast,) * like.placement.ndim
    made: Tensor = tensor_ops.tensor(value, **where)
    return made


@register_function
def copy_(self: Tensor, other: Tensor | ndarray, non_blocking: bool = False) -> Tensor:
    """Take the value of `other`, which may have another dtype, placement and sbp.

    An array is the logical value. `non_blocking` is torch's hint: copies are ordered with the ops
    here.
    """
    if isinstance(other, ndarray):
        other = _of_array(other, self)
    if not isinstance(other, Tensor):
        raise OnefoldTypeError(f"copy_ needs a Tensor, but got {type(other).__name__}")
    check_change(self, "copy_")
    if other.is_global != self.is_global:
        raise MixedTensorsError(
            f"copy_: cannot copy between a local and a global tensor ({other.meta!r} into "
            f"{self.meta!r}); convert the source with to_global or to_local first"
        )
    value = names.cast(other, self.dtype) if other.dtype != self.dtype else other
    if value.shape != self.shape:
        value = names.expand(value, self.shape)
    return overwrite(self, value, "copy_")


@register_function
def fill_(input: Tensor, value: Tensor | Number) -> Tensor:
    """Every element becomes `value` (a number or a one-element tensor)."""
    check_change(input, "fill_")
    if write_everywhere(input, value):
        return input
    if isinstance(value, Tensor) and value.meta.numel == 1 and value.is_global == input.is_global:
        return copy_(input, names.reshape(value, ()))
    return overwrite(input, tensor_ops.full_like(input, value), "fill_")


@register_function
def zero_(input: Tensor) -> Tensor:
    """Every element becomes 0."""
    check_change(input, "zero_")
    if write_everywhere(input, 0):
        return input
    return overwrite(input, tensor_ops.full_like(input, 0), "zero_")


@register_function
def setitem_(self: Tensor, index: object, value: Tensor | Number) -> None:
    """`x[index] = value`."""
    check_change(self, "__setitem__")
    if write_item(self, index, value):
        return
    assign(self, tensor_ops.setitem(snapshot(self), index, value), "__setitem__")


@register_function
def fill_diagonal_(self: Tensor, fill_value: Number, wrap: bool = False) -> Tensor:
    """The elements on the diagonal become `fill_value`; more than two dims must be of equal size.

    With `wrap` the diagonal of a tall matrix begins again below, after one row. Raises
    OnefoldRuntimeError for fewer than two dims, and for more of unequal sizes.
    """
    if self.ndim < 2:
        raise OnefoldRuntimeError("dimensions must larger than 1")
    if self.ndim > 2 and len(set(self.shape)) > 1:
        raise OnefoldRuntimeError("all dimensions of input must be of equal length")
    check_change(self, "fill_diagonal_")
    height, width = self.shape[-2:]
    blocks = (
        [self]
        if not wrap or self.ndim > 2
        else [
            tensor_ops.narrow(self, 0, first, height - first)
            for first in range(0, height, width + 1)
        ]
    )
    for block in blocks:
        while block.ndim > 1:
            block = tensor_ops.diagonal(block, 0, 0, block.ndim - 1)
        fill_(block, fill_value)
    return self
