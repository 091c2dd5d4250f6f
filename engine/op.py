"""Op: the base class of operations (shapes, layouts, gradient, local kernel)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from ..errors import (
    OnefoldError,
    OnefoldIndexError,
    OnefoldRuntimeError,
    OnefoldTypeError,
    OnefoldValueError,
)
from ..kernels.select import pick
from .boxing import BoxingPlan
from .meta import Meta
from .placement import Placement
from .signature import Axis, Rule, from_spec

Arg = Any  # a Meta where a tensor was passed, else the argument itself
Kernel = Callable[..., Any]  # local torch tensors (and runtime numbers) -> local torch tensor(s)


@dataclass(frozen=True, slots=True)
class Local:
    """What a kernel may know of the rank it runs on: the boxes of its input and output shards."""

    position: int
    inputs: tuple[Meta | None, ...]  # global metas; None for an absent optional tensor
    outputs: tuple[Meta, ...]
    placement: Placement | None

    @property
    def device_type(self) -> str:
        """Of the tensors that the kernel works on."""
        if self.placement is not None:
            return self.placement.device_type
        metas = [meta for meta in (*self.inputs, *self.outputs) if meta is not None]
        device = metas[0].device if metas else None
        return "cpu" if device is None else device.type

    def pick(self, reference: Kernel) -> Kernel:
        """The function that does the work of a torch reference here; see `kernels/select.py`."""
        return pick(reference, self.device_type)

    def input_shape(self, index: int) -> tuple[int, ...]:
        meta = self.inputs[index]
        assert meta is not None
        return meta.local_shape(self.position)

    def input_offset(self, index: int) -> tuple[int, ...]:
        meta = self.inputs[index]
        assert meta is not None
        return meta.local_offset(self.position)

    def output_shape(self, index: int = 0) -> tuple[int, ...]:
        return self.outputs[index].local_shape(self.position)

    def output_offset(self, index: int = 0) -> tuple[int, ...]:
        return self.outputs[index].local_offset(self.position)


class NoAttributes(NamedTuple):
    """The record of an op that has none."""


def as_they_are(*attrs: Any) -> tuple[Any, ...]:
    """The attributes of an op that has no record."""
    return attrs


class Op:
    """One operation. A subclass is final; families are functions that return ops.

    A subclass gives `kernel` and `rule` (or `spec`), and where the defaults do not fit `infer`,
    `vjp`, `bind` and `flops`. In `infer`, `rule` and `flops` every tensor argument is a Meta.

    What else the op is called with is said once, as the fields of a record:

        class SoftmaxAttributes(NamedTuple):
            dim: int
            dtype: torch.dtype | None = None

    With `attributes = SoftmaxAttributes` the entry is called as `entry(x, dim, dtype)`, and its
    type says so. The record is made with the plan, from what the entry was called with: `infer`,
    `rule` and `vjp` get it after the tensors, `bind` and `decompose` as `attrs`, the kernel and
    what `decompose` returns get its fields. `infer` checks them.
    """

    name: str
    attributes: Callable[..., tuple[Any, ...]] = staticmethod(as_they_are)
    num_outputs: int = 1
    spec: str = ""  # default rule; see `signature.from_spec`
    linear: str = ""  # how partial sums pass; see `signature.from_spec`
    saves: tuple[int, ...] | None = None  # inputs which vjp needs; None: all of them
    saves_output: bool = False  # whether vjp needs the output
    differentiable: bool = True
    aliases: bool = False  # the kernel may return memory of its first input
    makes_views: bool = False  # the outputs are views of the first input, then aliases too
    multiple_views: bool = False  # such outputs may not be written while gradients are recorded
    flops_per_element: ClassVar[float] = 1.0

    def kernel(self, *args: Any) -> Any:
        """The local computation: torch tensors and attributes -> torch tensor(s)."""
        raise NotImplementedError

    def infer(self, *args: Arg) -> Meta | tuple[Meta, ...]:
        """Shapes and dtypes of the outputs, as metas whose layout is ignored.

        The default runs the kernel on torch's data-free "meta" device, so that shapes, dtypes and
        error conditions are torch's own.
        """
        if args and type(args[-1]) is self.attributes:
            args = (*args[:-1], *args[-1])
        results = self.kernel(*[_as_torch_meta(arg) for arg in args])
        if isinstance(results, torch.Tensor):
            return _as_meta(results)
        return tuple(_as_meta(result) for result in results)

    def following(self, attrs: tuple[Any, ...]) -> tuple[Any, ...]:
        """What `infer`, `rule` and `vjp` get after the tensors, of a call with these attributes."""
        if self.attributes is as_they_are:
            return attrs
        record = attrs if type(attrs) is self.attributes else self.attributes(*attrs)
        return (record,) if record else ()

    def rule(self, axis: Axis, *args: Arg) -> Rule:
        """The legal signatures on one mesh axis (all-broadcast is added by the dispatcher).

        The metas' shapes are those seen along this axis: split already by the axes before it.
        """
        return from_spec(self.spec, self.linear)

    def bind(self, local: Local, attrs: Any) -> Kernel:
        """The kernel for one rank, attributes bound; takes the local tensors."""
        return _with_attributes(local.pick(self.kernel), len(local.inputs), attrs)

    @property
    def depends_on_position(self) -> bool:
        """Whether `bind` must be asked for each rank."""
        return type(self).bind is not Op.bind

    def vjp(self, needs: Sequence[object], dy: Any, y: Any, *args: Any) -> Any:
        """Gradients for the tensor inputs; `needs[i]` is falsy where none is wanted.

        Written with ops, so that it can be differentiated and captured again. Inputs that
        `saves` leaves out, and the output unless `saves_output`, arrive as metas.
        """
        raise OnefoldRuntimeError(f"{self.name} has no gradient")

    def scatter_view(self, x: Any, value: Any, index: int, *attrs: Any) -> Any:
        """`x` with `value` in the place of output `index`, for an op whose outputs are views.

        What becomes of a base when a view of it is written. Written with ops, as `vjp`. Outputs of
        one call have no element in common.
        """
        raise NotImplementedError(f"{self.name} needs scatter_view, since its outputs are views")

    def decompose(self, metas: tuple[Meta | None, ...], attrs: Any) -> Kernel | None:
        """The op in smaller ops for these layouts: a function of the same tensors and attributes.

        For ops that must communicate inside. None where the kernel runs on each shard.
        """
        return None

    def boxing(self, metas: tuple[Meta | None, ...], attrs: Any) -> BoxingPlan | None:
        """The plan that moves the input's shards between ranks: of boxing itself, no other op."""
        return None

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        """Arithmetic of the whole logical op."""
        return self.flops_per_element * sum(meta.numel for meta in outputs)

    def __repr__(self) -> str:
        return f"op {self.name}"


def _with_attributes(kernel: Kernel, num_inputs: int, attrs: tuple[Any, ...]) -> Kernel:
    """`kernel` with its trailing arguments bound; the commonest forms without star arguments."""
    if not attrs:
        return kernel
    if num_inputs == 1 and len(attrs) == 1:
        only = attrs[0]
        return lambda x: kernel(x, only)
    if num_inputs == 1 and len(attrs) == 2:
        first, second = attrs
        return lambda x: kernel(x, first, second)
    return lambda *tensors: kernel(*tensors, *attrs)


def _as_torch_meta(arg: Arg) -> Any:
    if isinstance(arg, Meta):
        return torch.empty(arg.shape, dtype=arg.dtype, device="meta")
    return arg


def _as_meta(result: torch.Tensor) -> Meta:
    return Meta.of(result.shape, result.dtype, device=result.device)


_KINDS: tuple[tuple[type[Exception], type[OnefoldError]], ...] = (
    (IndexError, OnefoldIndexError),
    (TypeError, OnefoldTypeError),
    (ValueError, OnefoldValueError),
    (RuntimeError, OnefoldRuntimeError),
    (NotImplementedError, OnefoldRuntimeError),
)


def error_class(error: Exception) -> type[OnefoldError]:
    """The class of ours that an error of a kernel is raised as."""
    if isinstance(error, OnefoldError):
        return type(error)
    found = [ours for theirs, ours in _KINDS if isinstance(error, theirs)]
    return found[0] if found else OnefoldRuntimeError


def explain(op: Op, error: Exception, args: Sequence[Arg], line: str) -> OnefoldError:
    """The error of one op call, told once: the reason, then what the op was given and where."""
    reason = str(error).split("\n")[0].removeprefix(f"{op.name}: ")
    given = "\n".join(f"  argument {i}: {arg!r}" for i, arg in enumerate(args))
    text = f"{op.name}: {reason}\n{given}\n  called at {line}"
    explained = error_class(error)(text)
    explained.raised_on = error.raised_on if isinstance(error, OnefoldError) else None
    return explained
