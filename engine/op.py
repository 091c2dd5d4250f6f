"""Op: the base class of operations (shapes, layouts, gradient, local kernel)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar

import torch

from ..errors import (
    LinAlgError,
    OnefoldError,
    OnefoldIndexError,
    OnefoldRuntimeError,
    OnefoldTypeError,
    OnefoldValueError,
)
from ..kernels.select import pick, pick_into
from .boxing import BoxingPlan
from .meta import Meta
from .names import Function
from .placement import Placement
from .saved_values import Saves
from .signature import Axis, Rule, from_spec
from .tensor import Tensor

T = TypeVar("T")
# What a subclass declares in its own way. Of `infer` and `rule`: a Meta where a tensor was passed.
Arg: TypeAlias = Any
Attributes: TypeAlias = tuple[object, ...]
Needs: TypeAlias = Sequence[object]  # per tensor input: whether its gradient is wanted
Metas: TypeAlias = "tuple[Meta | None, ...]"  # of the tensor inputs; None for an absent one
# Per tensor input: its gradient, or anything falsy where none is wanted.
Gradients: TypeAlias = Sequence[object]
Order: TypeAlias = Literal["", "row-major", "expanded", "always", "first"]  # see `Op.order`
Kernel: TypeAlias = Function  # local torch tensors (and runtime numbers) -> torch tensor(s)


def required(value: T | None) -> T:
    """The value, which must not be None, such as the meta of a required tensor."""
    assert value is not None
    return value


class Bound:
    """A kernel and the arguments that follow the tensors.

    `shard_runner` inlines such a call, which saves one Python call per kernel.
    """

    __slots__ = ("args", "kernel")

    def __init__(self, kernel: Kernel, *args: object) -> None:
        self.kernel = kernel
        self.args = args

    def __call__(self, *tensors: object) -> object:
        return self.kernel(*tensors, *self.args)


@dataclass(frozen=True, slots=True)
class Local:
    """The rank that a kernel runs on: the boxes of its input and output shards."""

    position: int
    inputs: Metas  # global
    outputs: tuple[Meta, ...]
    placement: Placement | None

    @property
    def device_type(self) -> str:
        """The device type of the tensors that the kernel works on."""
        if self.placement is not None:
            return self.placement.device_type
        metas = [meta for meta in (*self.inputs, *self.outputs) if meta is not None]
        device = metas[0].device if metas else None
        return "cpu" if device is None else device.type

    def pick(self, reference: Kernel) -> Kernel:
        """The kernel for a torch reference on this device; see `kernels/select.py`."""
        return pick(reference, self.device_type)

    def pick_into(self, reference: Kernel, into: Kernel) -> Kernel:
        """As `pick`, for a kernel with `out=`; `into` is the torch reference with `out=`."""
        return pick_into(reference, into, self.device_type)

    def bind(self, reference: Kernel, *args: object) -> Bound:
        """As `pick`, with these arguments bound after the op's tensors and numbers."""
        kernel = self.pick(reference)
        site = getattr(kernel, "call_site", None)
        return Bound(kernel, *args) if site is None else Bound(site(*args))

    def around(self, kernel: Kernel, call: Kernel) -> Kernel:
        """A function of the op's tensors that calls a picked kernel.

        The replay of a Triton kernel includes what the function does around it, so `call` must do
        the same each time it gets the same layouts. Its parameters have the names of the kernel's.
        """
        return around(kernel, call)

    def input(self, index: int) -> Meta:
        return required(self.inputs[index])

    def input_shape(self, index: int) -> tuple[int, ...]:
        return self.input(index).local_shape(self.position)

    def input_offset(self, index: int) -> tuple[int, ...]:
        return self.input(index).local_offset(self.position)

    def output_shape(self, index: int = 0) -> tuple[int, ...]:
        return self.outputs[index].local_shape(self.position)

    def output_offset(self, index: int = 0) -> tuple[int, ...]:
        return self.outputs[index].local_offset(self.position)


def around(kernel: Kernel, call: Kernel) -> Kernel:
    """`Local.around`, for a function that is always called with the same layouts."""
    traced: Function | None = getattr(kernel, "around", None)
    made: Kernel = call if traced is None else traced(call)
    return made


class NoAttributes(NamedTuple):
    """The record of an op that has none."""


def no_kernel(*args: object) -> torch.Tensor:
    """The `Op.kernel` of ops that only have `bind` and `infer`."""
    raise NotImplementedError("this op has no kernel: it overrides bind and infer")


class Op:
    """One operation. A subclass is final; families are functions that return ops.

    A subclass gives `kernel` (the local computation) and `rule` (or `spec`), and where the defaults
    do not fit `infer`, `vjp`, `bind` and `flops`. In `infer`, `rule` and `flops` every tensor
    argument is a Meta.

    The other arguments of the op are declared once, as the fields of a record:

        class SoftmaxAttributes(NamedTuple):
            dim: int
            dtype: torch.dtype | None

    With `attributes = SoftmaxAttributes` the entry is called as `entry(x, dim, dtype)`, and its
    type says so. The record is made with the plan, from what the entry was called with: `infer`,
    `rule` and `vjp` get it after the tensors, `bind`, `decompose` and `scatter_view` as `attrs`,
    the kernel and what `decompose` returns get its fields. `infer` checks them. A field with a
    default may be left out by callers, which makes each call slower.
    """

    name: str
    kernel: Kernel = staticmethod(no_kernel)  # on torch tensors and attributes
    attributes: Callable[..., Attributes] = NoAttributes
    num_outputs: int = 1
    like: tuple[int, ...] = ()  # per output: which input's shape and dtype it has; else see `infer`
    spec: str = ""  # default rule; see `signature.from_spec`
    linear: str = ""  # how partial sums pass; see `signature.from_spec`
    # The inputs that vjp needs; None: all of them. With ((1,), (0,)) the gradient of input 0 needs
    # input 1 and the other way round, and what no wanted gradient needs is not kept.
    saves: Saves | None = None
    # Whether vjp needs the output; of several outputs, those that it needs, or a tuple as above.
    saves_output: bool | Saves = False
    # The entry of the op that gives the first output in a lower precision too, after it.
    with_low_copy: Function | None = None
    one_gradient: bool = False  # whether of several outputs only the first can have a gradient
    differentiable: bool = True
    # Whether `bind` depends on the rank: True for a class that overrides it, unless it says no.
    depends_on_position: bool = False
    aliases: bool = False  # the kernel may return memory of its first input
    makes_views: bool = False  # the outputs are views of the first input, then aliases too
    multiple_views: bool = False  # such outputs may not be written while gradients are recorded
    # The memory order of results that share no memory with inputs: row-major if all inputs are
    # ("row-major"), also if some were expanded from such ("expanded"), or "always"; or the order
    # of `torch.empty_like` of the "first" input. If it is "", only a run of the kernel tells.
    order: Order = ""
    flops_per_element: ClassVar[float] = 1.0

    def __init_subclass__(cls, **settings: object) -> None:
        super().__init_subclass__(**settings)
        own = vars(cls)
        if "bind" in own and "depends_on_position" not in own:
            cls.depends_on_position = True

    def __init__(self, name: str = "", kernel: Kernel | None = None) -> None:
        self.name = name or self.name
        self.kernel = kernel or self.kernel

    def infer(self, *args: Arg) -> Meta | tuple[Meta, ...]:
        """Shapes and dtypes of the outputs, as metas whose layout is ignored.

        Without `like` the default is what `deduce` tells, or else the kernel.
        """
        if self.like:
            metas = tuple([args[i] for i in self.like])
            return metas[0] if self.num_outputs == 1 else metas
        try:
            found = self.deduce(*args)
        except (TypeError, ValueError, IndexError):  # torch explains these arguments better
            found = None
        return self.infer_by_kernel(*args) if found is None else found

    def deduce(self, *args: Arg) -> Meta | tuple[Meta, ...] | None:
        """`infer` by arithmetic, for ordinary arguments; None where it must ask the kernel.

        This saves time: on its "meta" device torch runs many functions in Python, and to do so
        first imports its compiler, which takes a second.
        """
        return None

    def infer_by_kernel(self, *args: Arg) -> Meta | tuple[Meta, ...]:
        """`infer` with the kernel, which runs on torch's data-free "meta" device.

        So shapes, dtypes and error conditions are torch's own.
        """
        if args and type(args[-1]) is self.attributes:
            args = (*args[:-1], *args[-1])
        results = self.kernel(*[blank(arg) if isinstance(arg, Meta) else arg for arg in args])
        if isinstance(results, torch.Tensor):
            return _as_meta(results)
        return tuple(_as_meta(result) for result in results)

    def attribute_args(self, attrs: Attributes) -> Attributes:
        """These attributes as `infer`, `rule` and `vjp` get them after the tensors: as a record."""
        if self.attributes is NoAttributes:
            return ()
        return (attrs if type(attrs) is self.attributes else self.attributes(*attrs),)

    def rule(self, axis: Axis, *args: Arg) -> Rule:
        """The legal signatures on one mesh axis (all-broadcast is added by the dispatcher).

        The metas' shapes are those seen along this axis: split already by the axes before it.
        """
        return from_spec(self.spec, self.linear)

    def bind(self, local: Local, attrs: Arg) -> Kernel:
        """The kernel for one rank, attributes bound; takes the local tensors."""
        return local.bind(self.kernel, *attrs)

    def vjp(self, needs: Needs, dy: Arg, y: Arg, *args: Arg) -> Gradients:
        """Gradients for the tensor inputs; `needs[i]` is falsy where none is wanted.

        Written with ops, so that it can be differentiated and captured again. Inputs that
        `saves` leaves out, and the output unless `saves_output`, arrive as metas. So does what only
        the gradients of inputs need that had none when the op ran.
        """
        raise OnefoldRuntimeError(f"{self.name} has no gradient")

    def scatter_view(self, x: Tensor, value: Tensor, index: int, attrs: Arg) -> Tensor:
        """`x` with output `index` replaced by `value`, for an op whose outputs are views.

        What becomes of a base when a view of it is written. Written with ops, as `vjp`. Outputs of
        one call have no element in common.
        """
        raise NotImplementedError(f"{self.name} needs scatter_view, since its outputs are views")

    def decompose(self, metas: Metas, attrs: Arg) -> Kernel | None:
        """The op in smaller ops for these layouts: a function of the same tensors and attributes.

        For ops that must communicate inside. None where the kernel runs on each shard.
        """
        return None

    def boxing(self, metas: Metas, attrs: Arg) -> BoxingPlan | None:
        """The plan that moves the input's shards between ranks, for boxing itself only."""
        return None

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        """Arithmetic of the whole logical op."""
        return self.flops_per_element * sum(meta.numel for meta in outputs)

    def exact_flops(
        self, inputs: Sequence[Meta | None], outputs: Sequence[Meta], attrs: Sequence[object]
    ) -> float:
        """`flops`, also where it follows from attributes and not from shapes alone."""
        return self.flops(inputs, outputs)

    def flops_fraction(self, inputs: Sequence[Meta | None], attrs: object) -> float:
        """The part of `flops` that the kernel computes: less than 1 where it skips zeros."""
        return 1.0

    def __repr__(self) -> str:
        return f"op {self.name}"


def blank(meta: Meta) -> torch.Tensor:
    """A torch tensor of this shape and dtype without data."""
    return torch.empty(meta.shape, dtype=meta.dtype, device="meta")


def _as_meta(result: torch.Tensor) -> Meta:
    return Meta.of(result.shape, result.dtype, device=result.device)


_KINDS: tuple[tuple[type[Exception], type[OnefoldError]], ...] = (
    (torch.linalg.LinAlgError, LinAlgError),  # type: ignore[attr-defined]
    (IndexError, OnefoldIndexError),
    (TypeError, OnefoldTypeError),
    (ValueError, OnefoldValueError),
)


def error_class(error: Exception) -> type[OnefoldError]:
    """The Onefold error class for an error of a kernel."""
    if isinstance(error, OnefoldError):
        return type(error)
    found = (ours for theirs, ours in _KINDS if isinstance(error, theirs))
    return next(found, OnefoldRuntimeError)


def explain(op: Op, error: Exception, args: Sequence[object], line: str) -> OnefoldError:
    """The error of one op call: the reason, then the arguments and the line of the call, once."""
    reason = str(error).split("\n")[0].removeprefix(f"{op.name}: ")
    labels = [f"argument {i}" for i in range(len(args))]
    fields: tuple[str, ...] = getattr(op.attributes, "_fields", ())
    if fields and len(args) > len(fields) and not getattr(op.attributes, "_field_defaults", None):
        labels[-len(fields) :] = fields  # attributes are passed in order, after the tensors
    given = "\n".join(f"  {label}: {arg!r}" for label, arg in zip(labels, args, strict=True))
    text = f"{op.name}: {reason}\n{given}\n  called at {line}"
    explained = error_class(error)(text)
    explained.raised_on = error.raised_on if isinstance(error, OnefoldError) else None
    return explained
