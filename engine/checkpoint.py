"""checkpoint: saves a function's inputs instead of its activations, and recomputes in backward."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any, NoReturn, ParamSpec, TypeVar

from ..errors import AutogradError
from . import autograd_tape, interpreter
from .autograd_tape import Leaf, Packed
from .generator import default_generator
from .names import Function
from .tensor import Tensor, from_shards

P = ParamSpec("P")
R = TypeVar("R")


# What a function finds as it was when it runs again.
kept_variables: list[ContextVar[Any]] = []


class _Region:
    """One call of a checkpointed function: it numbers what the tape saves, and recomputes it."""

    def __init__(
        self, function: Function, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        self.function = function
        # Inside another checkpoint, the inputs are activations, which that one recomputes.
        self.args = [_held(arg) for arg in args]
        self.kwargs = {key: _held(value) for key, value in kwargs.items()}
        self.interpreter = interpreter.get_current()
        self.moment = next(interpreter.sequence)
        self.random = default_generator.get_state()
        self.variables = [(variable, variable.get()) for variable in kept_variables]
        self.saved = 0
        self.values: dict[int, Tensor] = {}

    def pack(self, tensor: Tensor) -> int:
        """Keep the number of the tensor instead of the tensor."""
        self.saved += 1
        return self.saved - 1

    def unpack(self, number: int) -> Tensor:
        if number not in self.values:
            self.recompute()
        if number not in self.values:
            raise AutogradError(
                "checkpoint: the function saved other tensors when it ran again than at first; it "
                "must do the same both times, so it must not depend on what changes between them"
            )
        return self.values.pop(number)

    def recompute(self) -> None:
        """Run the function once more, with the random numbers of the first time."""
        values: list[Tensor] = []

        def keep(tensor: Tensor) -> int:
            edge = tensor.node
            owner = edge.tensor() if isinstance(edge, Leaf) else tensor
            if edge is not None and owner is not None and edge.seq < self.moment < owner.version:
                _changed()
            if tensor.node is None:
                tensor.shared = True  # in-place methods later in the function leave it alone
            values.append(from_shards(tensor.shards, tensor.meta))
            return len(values) - 1

        args = [self.given(arg) for arg in self.args]
        kwargs = {key: self.given(value) for key, value in self.kwargs.items()}
        now = default_generator.get_state()
        default_generator.set_state(self.random)
        # Only gradients that the function computes itself read what it saved here.
        autograd_tape.saved_hooks.push((keep, values.__getitem__))
        current = interpreter.get_current()
        mode = self.interpreter.repeated_under(current) if self.interpreter else current
        recomputing = current.recomputing() if current else nullcontext()
        before = [(variable, variable.set(value)) for variable, value in self.variables]
        try:
            with interpreter.grad_mode(True), recomputing, interpreter.using(mode):
                self.function(*args, **kwargs)
        finally:
            for variable, token in before:
                variable.reset(token)
            autograd_tape.saved_hooks.pop()
            default_generator.set_state(now)
        self.values = dict(enumerate(values))

    def given(self, arg: object) -> object:
        if isinstance(arg, Packed):
            return arg.tensor()
        if isinstance(arg, Tensor) and arg.version > self.moment:
            _changed()
        return arg


def _held(arg: object) -> object:
    return Packed(arg) if isinstance(arg, Tensor) and autograd_tape.saved_hooks.items() else arg


def _changed() -> NoReturn:
    raise AutogradError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        "operation: checkpoint runs its function again in backward, and an input or parameter of "
        "it was changed since"
    )


def checkpoint(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """`function(*args, **kwargs)`, whose activations are recomputed in backward instead of kept.

    Random numbers repeat. Parameters that the function reads get their gradients as usual. Raises
    AutogradError in backward when an input was changed in place since. Source: Chen et al.,
    "Training deep nets with sublinear memory cost" (2016).

    >>> import onefold as flow
    >>> x = flow.tensor([3.0], requires_grad=True)
    >>> flow.checkpoint.checkpoint(lambda x: x * x, x).sum().backward()
    >>> x.grad.numpy()
    array([6.], dtype=float32)
    """
    if not interpreter.is_grad_enabled():
        return function(*args, **kwargs)
    region = _Region(function, args, kwargs)
    autograd_tape.saved_hooks.push((region.pack, region.unpack))
    try:
        return function(*args, **kwargs)
    finally:
        autograd_tape.saved_hooks.pop()
