"""autograd.Function: a user-defined forward and backward as one node of the tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from ..errors import AutogradError, OnefoldTypeError
from . import interpreter
from .argument_types import Layout
from .autograd_tape import Edge, Node, Output, Packed, saved_hooks
from .global_mode import OwnDevice
from .gradient_seeds import check_ranks
from .meta import Meta, Shape
from .names import names
from .op import Arg, Gradients, Needs, Op, required
from .sbp import without_partial
from .tensor import Tensor, from_shards, tensor_ops
from .views import Detach, base_of, link, stand_in


class Context:
    """Passes values from forward to backward: saved tensors and any attributes."""

    def __init__(self) -> None:
        self.needs_input_grad: tuple[bool, ...] = ()
        self._saved: list[Tensor | Packed | None] = []
        self._moment = 0  # when they were saved
        self._from_output: dict[int, int] = {}  # which of them are outputs, and which outputs
        self._outputs: Sequence[Tensor] = ()  # the outputs, while backward runs
        self._not_differentiable: set[int] = set()
        self._dirty: dict[int, Tensor] = {}
        self._name = ""  # of the Function, while forward runs and a node will be made
        self._materialize = True

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Save tensors (inputs, outputs or others) for backward, which reads `saved_tensors`."""
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise OnefoldTypeError(
                    f"save_for_backward keeps Tensors and None, but got {type(tensor).__name__}; "
                    "keep other values as attributes of ctx"
                )
        self._saved = list(tensors)
        self._moment = next(interpreter.sequence)

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Accepted and ignored: derivatives in forward mode are computed by `backward`."""

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The saved tensors; raises AutogradError if one has been changed in place since."""
        found: list[Tensor | None] = []
        for index, saved in enumerate(self._saved):
            if isinstance(saved, Tensor) and saved.version > self._moment:
                raise AutogradError(
                    "one of the variables needed for gradient computation has been modified by "
                    "an inplace operation since save_for_backward"
                )
            if index in self._from_output:
                found.append(self._outputs[self._from_output[index]])
            else:
                found.append(saved.tensor() if isinstance(saved, Packed) else saved)
        return tuple(found)

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Outputs that get no gradient."""
        self._not_differentiable.update(map(id, tensors))

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Inputs that forward changes in place, and returns.

        Raises AutogradError for a leaf that requires grad, and for views that torch does not allow
        to be written.
        """
        if self._name:
            with interpreter.grad_mode(True):
                for tensor in tensors:
                    names.check_change(tensor, self._name)
        self._dirty.update({id(tensor): tensor for tensor in tensors})

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (the default) or None for outputs without a gradient."""
        self._materialize = value

    def settle(self, args: Sequence[object], outputs: Sequence[Tensor]) -> None:
        """After forward: leave saved outputs to the node, to avoid a reference cycle."""
        inputs = {id(arg) for arg in args} - self._dirty.keys()
        places = {id(y): index for index, y in enumerate(outputs) if id(y) not in inputs}
        for index, saved in enumerate(self._saved):
            if id(saved) in places:
                self._from_output[index] = places[id(saved)]
                self._saved[index] = None
            elif isinstance(saved, Tensor) and saved_hooks.items():
                self._saved[index] = Packed(saved)


class _Apply:
    """A Function as an op on the tape."""

    def __init__(self, function: type[Function]) -> None:
        self.name = function.__name__
        self.function = function

    def vjp(
        self,
        needs: Needs,
        dy: tuple[Tensor | None, ...],
        y: tuple[Arg, ...],
        ctx: Context,
        slots: Sequence[int],
        number: int,
        inputs: Sequence[Meta | None],
    ) -> tuple[Tensor | None, ...]:
        given: list[Tensor | None] = [None] * number
        for slot, gradient, output in zip(slots, dy, y, strict=True):
            meta = output if isinstance(output, Meta) else output.meta
            missing = gradient is None and ctx._materialize
            given[slot] = zeros_of(meta) if missing else gradient
        ctx._outputs = y
        try:
            grads = self.function.backward(ctx, *given)
        finally:
            ctx._outputs = ()
        grads = grads if isinstance(grads, tuple) else (grads,)
        if len(grads) != len(needs):
            raise AutogradError(
                f"{self.name}.backward returned {len(grads)} gradients, but forward got "
                f"{len(needs)} arguments; return one per argument, None where there is none"
            )
        for index, gradient in enumerate(grads):
            if gradient is not None and not isinstance(gradient, Tensor):
                raise OnefoldTypeError(
                    f"{self.name}.backward: gradient {index} must be a Tensor or None, but got "
                    f"{type(gradient).__name__}"
                )
        rows = enumerate(zip(grads, needs, inputs, strict=True))
        return tuple(
            [
                None if gradient is None or not need else self._fitted(gradient, required(x), index)
                for index, (gradient, need, x) in rows
            ]
        )

    def _fitted(self, gradient: Tensor, x: Meta, index: int) -> Tensor:
        """A gradient that backward returned for input `index`, in the shape and dtype of it."""
        mine = gradient.meta
        if mine is not x:
            what = f"{self.name}.backward: gradient {index}"
            if mine.shape != x.shape and not _broadcasts(x.shape, mine.shape):
                raise AutogradError(
                    f"{what} has shape {tuple(mine.shape)}, which does not fit the argument of "
                    f"forward, of shape {tuple(x.shape)}; return a gradient of that shape"
                )
            check_ranks(x, gradient, what)
            gradient = names.sum_to(gradient, x)
        return _own(gradient)


def _broadcasts(shape: Shape, to: Shape) -> bool:
    """Whether a tensor of this shape broadcasts to another, so that gradients can be summed."""
    if len(shape) > len(to):
        return False
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return all(mine in (1, other) for mine, other in pairs)


def _own(gradient: Tensor) -> Tensor:
    """A new tensor of the same gradient: a user's backward may return one used elsewhere."""
    duplicate = from_shards(gradient.shards, gradient.meta, gradient.node)
    gradient.shared = duplicate.shared = True
    return duplicate


def zeros_of(meta: Meta) -> Tensor:
    """Zeros, broadcast where the meta is partial."""
    if meta.placement is None:
        return tensor_ops.zeros(meta.shape, dtype=meta.dtype, device=OwnDevice(meta.device))
    layout: Layout = {"placement": meta.placement, "sbp": without_partial(meta.nd_sbp)}
    return tensor_ops.zeros(meta.shape, dtype=meta.dtype, **layout)


class _FromFunction(Detach):
    """The step to a Function's output that is a view, which has the Function's own gradient."""

    __slots__ = ()

    def scatter(self, base: Tensor, value: Tensor) -> Tensor:
        if value.node is not None:
            raise AutogradError(
                "This view was created inside a custom Function (or because an input was returned "
                "as-is) and the autograd logic to handle view+inplace would override the custom "
                "backward associated with the custom Function, leading to incorrect gradients. "
                "This behavior is forbidden. You can fix this by cloning the output of the custom "
                "Function."
            )
        return super().scatter(base, value)


_FROM_FUNCTION = _FromFunction()


class _Once(Op):
    """The gradient of a gradient that is not differentiable."""

    name = "once_differentiable"

    def vjp(self, needs: Needs, dy: Arg, y: Arg, *args: Arg) -> Gradients:
        raise AutogradError(
            "trying to differentiate twice a function that was marked with @once_differentiable. "
            "Write its backward with functions of onefold, and leave the mark out"
        )


_ONCE = _Once()


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Mark the backward of a Function that is not differentiated itself (a decorator).

    Raises AutogradError where its gradients would be.

    Example::

        @staticmethod
        @once_differentiable
        def backward(ctx, dy): ...
    """

    @wraps(backward)
    def once(ctx: Context, *grads: object) -> object:
        with interpreter.grad_mode(False):
            found = backward(ctx, *grads)
        edges = tuple([dy.node for dy in grads if isinstance(dy, Tensor) and dy.node is not None])
        if not interpreter.is_grad_enabled() or not edges:
            return found
        several = found if isinstance(found, tuple) else (found,)
        marked = tuple([_marked(each, edges) for each in several])
        return marked if isinstance(found, tuple) else marked[0]

    return once


def _marked(gradient: object, edges: tuple[Edge, ...]) -> object:
    """A gradient that depends on these edges by a function that is not differentiable."""
    if not isinstance(gradient, Tensor):
        return gradient
    marked = _own(gradient)
    marked.node = Node(_ONCE, edges, (), None, gradient.meta)
    return marked


class Function:
    """The base of user-defined operations with a gradient; forward and backward are static methods.

    Where there is a static `setup_context(ctx, inputs, output)`, forward gets the inputs only, and
    what backward needs is kept there.

    >>> import onefold as flow
    >>> class Cube(flow.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x * x
    ...     @staticmethod
    ...     def backward(ctx, dy):
    ...         (x,) = ctx.saved_tensors
    ...         return dy * 3 * x * x
    >>> x = flow.tensor([2.0], requires_grad=True)
    >>> Cube.apply(x).sum().backward()
    >>> x.grad.numpy()
    array([12.], dtype=float32)
    """

    @staticmethod
    def forward(ctx: Arg, *args: Arg) -> Arg:
        raise NotImplementedError("an autograd.Function needs a static forward(ctx, *args)")

    @staticmethod
    def setup_context(ctx: Arg, inputs: tuple[Arg, ...], output: Arg) -> None:
        raise NotImplementedError("an autograd.Function may have a static setup_context")

    @staticmethod
    def backward(ctx: Arg, *grads: Arg) -> Arg:
        raise NotImplementedError("an autograd.Function needs a static backward(ctx, *grads)")

    @classmethod
    def apply(cls, *args: object) -> Any:
        """Run forward, recorded as one node."""
        if (current := interpreter.get_current()) is not None:
            for arg in args:
                if isinstance(arg, Tensor):
                    current.before_sharing(arg)
            current.before_functions(cls.forward, cls.setup_context, cls.backward)
        ctx = Context()
        parents = tuple(arg.node if isinstance(arg, Tensor) else None for arg in args)
        ctx.needs_input_grad = tuple(parent is not None for parent in parents)
        records = interpreter.is_grad_enabled() and any(ctx.needs_input_grad)
        ctx._name = f"{cls.__name__}.mark_dirty" if records else ""
        with interpreter.grad_mode(False):
            if cls.setup_context is Function.setup_context:
                result = cls.forward(ctx, *args)
            else:
                result = cls.forward(*args)
                cls.setup_context(ctx, args, result)
        if not records:
            return result
        outputs = result if isinstance(result, tuple) else (result,)
        slots = [index for index, output in enumerate(outputs) if isinstance(output, Tensor)]
        tensors = [outputs[slot] for slot in slots]
        if ctx._dirty.keys() - set(map(id, tensors)):
            raise AutogradError(
                f"{cls.__name__}: some inputs that forward marked as dirty were not returned; the "
                "inputs that are changed in place must all be outputs"
            )
        ctx.settle(args, tensors)
        node = Node(
            _Apply(cls),
            parents,
            (
                ctx,
                slots,
                len(outputs),
                tuple([arg.meta if isinstance(arg, Tensor) else None for arg in args]),
            ),
            tuple([y.shards for y in tensors]) if ctx._from_output else None,
            tuple([y.meta for y in tensors]),
        )
        fresh = list(outputs)
        given = set(map(id, args))
        for index, (slot, output) in enumerate(zip(slots, tensors, strict=True)):
            y = fresh[slot] = from_shards(output.shards, output.meta)
            y.shared = output.shared = True
            if id(output) in ctx._dirty:
                pass
            elif id(output) in given or base_of(output) is not None:
                link(y, stand_in(output), _FROM_FUNCTION)
            if output.meta.is_floating and id(output) not in ctx._not_differentiable:
                y.node = Output(node, index)
            if id(output) in ctx._dirty:
                fresh[slot] = names.set_result(output, y, cls.__name__)
        return tuple(fresh) if isinstance(result, tuple) else fresh[0]


FunctionCtx = Context


class InplaceFunction(Function):
    """A base of older programs, whose forward may write into its input; as Function."""
