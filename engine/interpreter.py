"""The interpreter that runs ops. Where `get_current()` is None, ops run eagerly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from functools import partial, wraps
from itertools import count
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    import torch

    from .autograd_tape import Edge, Node
    from .tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")


class Interpreter:
    """Runs one op on its arguments, instead of the eager dispatcher.

    One that `captures` computes nothing, so the values of its tensors cannot be read.
    """

    @property
    def captures(self) -> bool:
        return False

    @property
    def keeps_masks(self) -> bool:
        """Whether dropout keeps its mask where backward reads it sooner than it draws it again."""
        return True

    @property
    def batches(self) -> bool:
        """Whether tensors stand for the rows of others, so that nothing may be kept with them."""
        return False

    def run(self, call: Callable[..., R], op: object, args: tuple[object, ...]) -> R:
        """Run `op`; `call` is the function that was called: under `using(None)` it is eager."""
        raise NotImplementedError

    def value_of_row(self, tensor: Tensor) -> torch.Tensor | None:
        """The value of a tensor that stands for rows of another; None for other tensors."""
        return None

    def before_change(self, tensor: Tensor) -> None:
        """Called before an in-place operation changes a tensor."""

    def before_sharing(self, tensor: Tensor) -> None:
        """Called before another tensor is made from the tensor's shards."""

    def before_gradient(self, tensor: Tensor) -> None:
        """Called before the `.grad` of a tensor is set."""

    def before_functions(self, *functions: object) -> None:
        """Called before the package calls users' functions, such as the forward of a Function."""

    def call_module(
        self,
        module: object,
        forward: Callable[..., R],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> R:
        """Run a module: `forward(*args, **kwargs)`."""
        return forward(*args, **kwargs)

    def dtype_of_products(self, device_type: str) -> torch.dtype | None:
        """The dtype to which matrix products cast float32 inputs there; None: they do not."""
        return None

    def run_vjp(self, node: Node, vjp: Callable[..., R], args: tuple[object, ...]) -> R:
        """Run the vjp of a node of the tape: `vjp(*args)`."""
        return vjp(*args)

    def start_backward(self, gradient: Tensor) -> Tensor:
        """The gradient from which `backward()` starts, given the one that the program passed."""
        return gradient

    def step_optimizer(self, optimizer: object, update: Callable[[], None]) -> None:
        """Run the update of an optimizer's step: `update()`."""
        update()

    def clip_gradients(
        self, params: Sequence[Tensor], max_norm: float, norm_type: float, error_if_nonfinite: bool
    ) -> Tensor:
        """The total norm of the parameters' gradients, by which they are clipped later."""
        raise NotImplementedError

    def for_gradients(self) -> Interpreter | None:
        """The interpreter for the ops of a backward that starts now."""
        return self

    def repeated_under(self, interpreter: Interpreter | None) -> Interpreter | None:
        """The interpreter that recomputes, under `interpreter`, what ran under this one."""
        return interpreter

    def adding(self, edge: Edge) -> AbstractContextManager[None]:
        """The block in which two gradients that arrived at an edge of the tape are added."""
        return nullcontext()

    def recomputing(self) -> AbstractContextManager[None]:
        """The block in which a checkpointed function runs again, for backward."""
        return nullcontext()


class Through(Interpreter):
    """The base of observing interpreters: passes ops to `inner`, or runs them if that is None."""

    def __init__(self, inner: Interpreter | None) -> None:
        self.hand_on_to(inner)

    def hand_on_to(self, inner: Interpreter | None) -> None:
        """Set `inner`, to which everything is passed on."""
        self.inner = inner
        self._to = inner or Interpreter()

    def run(self, call: Callable[..., R], op: object, args: tuple[object, ...]) -> R:
        with using(self.inner):
            return call(*args)

    def for_gradients(self) -> Interpreter | None:
        return self


def _handed_on(name: str) -> Callable[..., object]:
    @wraps(getattr(Interpreter, name))
    def method(self: Through, *args: object, **kwargs: object) -> object:
        return getattr(self._to, name)(*args, **kwargs)

    return method


def _read_from_inner(name: str) -> property:
    return property(lambda self: getattr(self._to, name))


for _name, _member in vars(Interpreter).items():
    if not _name.startswith("_") and _name not in vars(Through):
        _how = _read_from_inner if isinstance(_member, property) else _handed_on
        setattr(Through, _name, _how(_name))


# Each thread has its own, and so has each task of asyncio.
_current: ContextVar[Interpreter | None] = ContextVar("interpreter", default=None)
_grad_enabled: ContextVar[bool] = ContextVar("grad_enabled", default=True)
get_current, set_current = _current.get, _current.set
is_grad_enabled, set_grad_enabled = _grad_enabled.get, _grad_enabled.set
set_current(None)  # what was set is found sooner than a default
set_grad_enabled(True)

# One sequence numbers the nodes of the tape and the in-place changes of tensors, so that what a
# node kept was changed since exactly when the change has the higher number.
sequence = count(1)
last_change = 0


def stamp() -> int:
    """A new number for an in-place change, which the changed tensor keeps as its `version`."""
    global last_change
    last_change = next(sequence)
    return last_change


def capturing() -> bool:
    """Whether ops are being captured, so that tensors have no values."""
    current = get_current()
    return current is not None and current.captures


@contextmanager
def using(interpreter: Interpreter | None) -> Iterator[None]:
    """Run the ops of the block under `interpreter` (None: eagerly)."""
    before = get_current()
    set_current(interpreter)
    try:
        yield
    finally:
        set_current(before)


def in_grad_mode(mode: bool, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function with the recording of gradients on or off.

    It runs in a context of its own, which is left however it ends: no line must run for that, which
    an interrupt could keep from running.
    """
    return copy_context().run(_in_grad_mode, mode, partial(function, *args, **kwargs))


def _in_grad_mode(mode: bool, function: Callable[[], R]) -> R:
    set_grad_enabled(mode)
    return function()


class grad_mode:
    """Switch the recording of gradients on or off in a block."""

    __slots__ = ("_before", "_mode")

    def __init__(self, mode: bool) -> None:
        self._mode = mode

    def __enter__(self) -> None:
        self._before = is_grad_enabled()
        set_grad_enabled(self._mode)

    def __exit__(self, *exc: object) -> None:
        set_grad_enabled(self._before)
