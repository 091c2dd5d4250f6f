"""Inputs that a program changes in place, and what a call must not give for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..engine import interpreter
from ..engine.tensor import Tensor
from ..engine.views import base_of
from ..errors import AutogradError, OnefoldRuntimeError
from .capture import Capture
from .ir import InputAssign, Program


def keep_changed(capture: Capture, inputs: Sequence[Tensor], whole: frozenset[int]) -> None:
    """Let the new values of inputs that were changed in place follow the outputs of the program.

    `whole` are the inputs of which each of several micro-batches gets all. Raises
    OnefoldRuntimeError for changes of these, and of the shape, dtype or layout.
    """
    program = capture.program
    for index, (x, before) in enumerate(zip(inputs, program.inputs, strict=True)):
        now = capture.value_of(x)
        if now is before:
            continue
        if now.meta is not before.meta:
            raise OnefoldRuntimeError(
                f"build() lets input {index}, which is {before.meta!r}, become {now.meta!r}; use a "
                "new name for the result"
            )
        if index in whole:
            raise OnefoldRuntimeError(
                f"build() changes input {index} in place, and each micro-batch gets all of it "
                "(whole=...), so that they would read each other's changes; change a clone()"
            )
        program.input_assigns.append(InputAssign(index, len(program.outputs)))
        program.outputs.append(now)


def check_changed(name: str, program: Program, inputs: Sequence[Tensor]) -> None:
    """Raise an error for inputs of a call that the program must not change in place."""
    if not program.input_assigns:
        return
    outside = [variable.tensor for variable in program.variables]
    for index, _ in program.input_assigns:
        x = inputs[index]
        if x.node is not None and interpreter.is_grad_enabled():
            raise AutogradError(
                f"{name} changes input {index} in place, which requires grad, and no gradient goes "
                "through a graph; pass x.detach(), or let build() change a clone()"
            )
        if has_relative(x, [*inputs[:index], *inputs[index + 1 :], *outside], also_itself=True):
            raise OnefoldRuntimeError(
                f"{name} changes input {index} in place, which is also another input, a parameter "
                "or a buffer, or shares memory with one; pass a clone()"
            )


def has_relative(x: Tensor, others: Iterable[Tensor], also_itself: bool = False) -> bool:
    """Whether a change of a tensor would be one of another, or of the same one among the others."""
    root = root_of(x)
    return any((also_itself or other is not x) and root_of(other) is root for other in others)


def root_of(x: Tensor) -> Tensor:
    """The tensor of which `x` is a view, perhaps through other views; else `x` itself."""
    while (base := base_of(x)) is not None:
        x = base
    return x
