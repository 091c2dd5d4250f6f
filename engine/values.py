"""Reads the logical value of a tensor: numpy, item, tolist, printing, torch conversion."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack as torch_from_dlpack

from ..distributed import collectives
from ..distributed.world import world
from ..errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError, user_line
from . import boxing, interpreter
from .autograd_tape import Leaf
from .captures import shards_of
from .meta import Meta
from .names import names, register_function
from .op import blank
from .sbp import broadcast, short
from .tensor import Tensor, from_shards


def whole(
    x: Tensor, instead: str = "Return the tensor from build() and read it outside"
) -> torch.Tensor:
    """The logical value as one torch tensor, the same on every process.

    Communicates only when some process of the world does not hold it whole; then every process
    must call it, those outside the placement too. May share memory with `x`. Raises
    OnefoldRuntimeError in a graph, with `instead` for what a program should do there.
    """
    if interpreter.capturing():
        raise no_values(instead)
    if (current := interpreter.get_current()) is not None:
        value = current.value_of_row(x)
        if value is not None:
            return value
    meta = x.meta
    if x.is_meta:
        raise without_data(x, f"the value of {described(x)} was asked for at {user_line()}")
    shards = shards_of(x)
    if meta.placement is None:
        return shards[0]
    if not meta.is_whole:
        target = meta.like(nd_sbp=(broadcast,) * meta.placement.ndim)
        shards = boxing.run(boxing.plan(meta, target), shards, op="read value")
    here = world()
    if here.launched and len(meta.placement.flat_ranks) < here.size:
        return _to_everyone(meta, shards)
    return shards[0]


def no_values(instead: str) -> OnefoldRuntimeError:
    """The error for code that needs values in a graph; `instead` says what to do there."""
    return OnefoldRuntimeError(
        "the value of a tensor was asked for while a graph is captured, but values exist only "
        f"when the graph runs. {instead}. Asked for at {user_line()}"
    )


def without_data(x: Tensor, what: str) -> OnefoldRuntimeError:
    """The error for code that needs the data of a tensor that has none."""
    if world().planned or (x.is_global and not x.meta.has_data):
        return without_values(what)
    return OnefoldRuntimeError(
        f'{what}, but it has no data, as all that is made with device="meta"; give it data with '
        "module.to_empty(device=...), and values with reset_parameters() or load_state_dict()"
    )


def without_values(what: str) -> OnefoldRuntimeError:
    """The error for code that needs values inside `flow.planning()`."""
    return OnefoldRuntimeError(
        f"{what}, but tensors of flow.planning() have no data: they have a shape, a dtype and a "
        "layout (x.shape, x.dtype, x.sbp), and a graph of them has plans (graph.plan(rank), "
        "graph.memory(rank), graph.summary()). Run the program outside of the block for values"
    )


def described(x: Tensor) -> str:
    """A tensor as errors show it."""
    text = f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
    return f"{text} {short(x.meta.nd_sbp)}" if x.is_global else text


def _to_everyone(meta: Meta, shards: tuple[torch.Tensor, ...]) -> torch.Tensor:
    here = world()
    assert meta.placement is not None and here.rank is not None
    source = meta.placement.flat_ranks[0]
    mine = shards[0] if here.rank == source else None
    device = meta.placement.device(here.rank)
    everyone = tuple(range(here.size))
    return collectives.broadcast(mine, meta.shape, meta.dtype, device, source, everyone)


@register_function
def numpy(self: Tensor, *, force: bool = False) -> np.ndarray:
    """The logical value as a numpy array; see `whole` for when it communicates.

    `force` changes nothing: tensors that require grad and those on a GPU have arrays anyway.

    A cpu tensor that is local shares its memory with the array, as far as `to_torch` does.
    """
    if self.is_meta:
        whole(self)  # raises: there is no data
    try:
        array = _shared(self).cpu().resolve_conj().numpy()
    except TypeError as error:
        raise OnefoldTypeError(
            f"numpy() cannot hold {self.dtype}: {error}; convert it first, for instance with "
            ".float()"
        ) from error
    return np.asarray(array)


@register_function
def item(self: Tensor) -> Any:
    """The value of a one-element tensor as a Python number."""
    if self.meta.numel != 1:
        raise OnefoldValueError(
            f"item() needs a tensor with one element, but this one has shape {tuple(self.shape)} "
            f"({self.meta.numel} elements); index it first, or use tolist()"
        )
    return whole(self).item()


@register_function
def tolist(self: Tensor) -> Any:
    """The logical value as nested Python lists."""
    return whole(self).tolist()


@register_function
def to_torch(self: Tensor) -> torch.Tensor:
    """A torch tensor: of a local tensor sharing memory, of a global one the logical value.

    Shared memory is not written by onefold: an in-place method or an optimizer gives `self` new
    memory first. What the caller writes there, `self` shows.
    """
    if self.is_local and self.is_meta and not world().planned:
        return self.shards[0]  # torch has such tensors, too
    return _shared(self)


def _shared(x: Tensor) -> torch.Tensor:
    """`to_torch` of a tensor with data."""
    value = whole(x)
    if x.is_local:
        x.shared = True
        return value
    return value.clone() if any(value is part for part in x.shards) else value


@register_function
def describe(self: Tensor) -> str:
    """The text of `print(x)`: the logical value, then layout and gradient state.

    Of a tensor without data the size stands for the value.
    """
    parts = []
    if self.is_global and not interpreter.capturing():
        parts = [f"placement={self.placement!r}", f"sbp={self.sbp!r}"]
    if self.node is not None:
        leaf = type(self.node) is Leaf
        parts.append("requires_grad=True" if leaf else f"grad_fn={self.node.name()}")
    if interpreter.capturing():
        return f"tensor(captured: {self.meta!r})"
    if self.is_meta:
        text = repr(blank(self.meta))
        text = text.replace("device='meta', ", "") if self.is_global else text
    else:
        value = whole(self)
        text = repr(value.cpu() if self.is_global else value)  # the same on every process
    if not parts:
        return text
    return f"{text[:-1]}, {', '.join(parts)})"


@register_function
def to_format(self: Tensor, spec: str) -> str:
    """The result of `format(x, spec)`: a 0-d tensor's number, else `str(x)`, which takes no spec.

    As in torch, a Parameter without spec is its `str` too.
    """
    number = self.ndim == 0 and not interpreter.capturing() and (spec or not self.is_meta)
    if number and (spec or type(self) is Tensor):
        return format(item(self), spec)
    if not spec:
        return str(self)
    if interpreter.capturing():
        whole(self)  # raises: a value that is not there yet
    raise OnefoldTypeError(
        f"unsupported format string {spec!r} passed to {type(self).__name__}.__format__: only a "
        f"0-d tensor is formatted as a number, and this one has shape {tuple(self.shape)}; index "
        "it first, or format x.tolist()"
    )


@register_function
def to_bool(self: Tensor) -> bool:
    """The result of `bool(x)`, for one element."""
    if self.meta.numel != 1:
        raise OnefoldRuntimeError(
            "Boolean value of Tensor with "
            f"{'more than one value' if self.meta.numel else 'no values'} is ambiguous; use "
            ".any() or .all()"
        )
    return bool(whole(self).item())


@register_function
def to_index(self: Tensor) -> int:
    """The result of `operator.index(x)`, for a one-element integer tensor."""
    if self.meta.is_floating or self.meta.numel != 1:
        raise OnefoldTypeError(
            "only integer tensors of a single element can be converted to an index, but this one "
            f"is {self.meta!r}"
        )
    return int(whole(self).item())


def computed(value: torch.Tensor) -> torch.Tensor:
    """The tensor with torch's lazy conjugation and negation resolved."""
    return value.resolve_conj().resolve_neg()


def from_torch(value: torch.Tensor, *, requires_grad: bool = False) -> Tensor:
    """A local tensor that shares memory with a torch tensor; see `to_torch` for who may write.

    A conjugate or a negation that torch has deferred, as in `z.conj().imag`, is computed into other
    memory: kernels read what is in memory.

    >>> import torch
    >>> from_torch(torch.zeros(2)).shape
    torch.Size([2])
    """
    if not isinstance(value, torch.Tensor):
        raise OnefoldTypeError(f"from_torch needs a torch.Tensor, got {type(value).__name__}")
    value = computed(value.detach())
    x = from_shards((value,), Meta.of(value.shape, value.dtype, device=value.device))
    x.shared = True  # so that onefold never writes there
    if requires_grad:
        names.set_requires_grad(x, True)
    return x


def from_numpy(value: np.ndarray) -> Tensor:
    """A local tensor that shares memory with a numpy array."""
    if not isinstance(value, np.ndarray):
        raise OnefoldTypeError(f"from_numpy needs a numpy array, got {type(value).__name__}")
    return from_torch(torch.from_numpy(value))


def from_dlpack(value: object) -> Tensor:
    """A local tensor that shares memory with any object that has `__dlpack__`."""
    return from_torch(torch_from_dlpack(value))


def to_dlpack(x: Tensor) -> object:
    """A DLPack capsule of a local tensor (or of this process's whole value of a global one)."""
    return to_torch(x).__dlpack__()
