"""Expressions: the computation of a pointwise kernel, as data.

An expression is a list of steps over numbered values: first the inputs, then the result of each
step. Eager ops make expressions of one step, fused chains of several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from . import (  # noqa: F401  (importing them defines the functions)
    complex_functions,
    scalar_functions,
    special_functions,
)
from .triton_functions import takes_of

_SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
# The type in which values of a dtype are worked on.
WORK = {
    torch.bool: torch.int32,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    **{dtype: dtype for dtype in (torch.float32, torch.float64, torch.uint8, *_SIGNED)},
}


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor of a dtype; a number known when the kernel runs; or an index.

    Numbers come as float64 or int64. An index is an int64 that is linear in the places of the
    output's dims, and has strides as a tensor has.
    """

    kind: Literal["tensor", "number", "index"]
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{self.kind} {short(self.dtype)}"


@dataclass(frozen=True, slots=True)
class ExpressionStep:
    """A function of earlier values, and the dtype of what it gives.

    `types` are those in which it takes its arguments: a value of another dtype is cast.
    """

    function: str
    arguments: tuple[int, ...]
    types: tuple[torch.dtype, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Expression:
    """Steps over inputs, and which of the values are written.

    Every step's value is rounded to its dtype, as it is where each step is a kernel of its own.
    """

    inputs: tuple[Input, ...]
    steps: tuple[ExpressionStep, ...]
    outputs: tuple[int, ...]

    def dtype(self, value: int) -> torch.dtype:
        """Of the value with this number."""
        count = len(self.inputs)
        return self.inputs[value].dtype if value < count else self.steps[value - count].dtype

    def __str__(self) -> str:
        lines = [f"v{number} = {given}" for number, given in enumerate(self.inputs)]
        for number, step in enumerate(self.steps, len(self.inputs)):
            arguments = ", ".join(
                f"v{value}" + (f".to({short(kind)})" if kind is not self.dtype(value) else "")
                for value, kind in zip(step.arguments, step.types, strict=True)
            )
            lines.append(f"v{number} = {step.function}({arguments}) -> {short(step.dtype)}")
        kept = ", ".join(f"v{value}" for value in self.outputs)
        return "\n".join([*lines, f"write {kept}"])


def short(dtype: torch.dtype) -> str:
    """Its name without "torch."."""
    return str(dtype).removeprefix("torch.")


class Writer:
    """Writes an expression step by step.

    >>> w = Writer()  # doctest: +SKIP
    >>> x, n = w.tensor(torch.bfloat16), w.number(2.0)  # doctest: +SKIP
    >>> y = w.step("mul", [x, n], torch.bfloat16)  # doctest: +SKIP
    >>> print(w.expression(y))  # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._inputs: list[Input] = []
        self._steps: list[tuple[str, tuple[int, ...], torch.dtype, torch.dtype | None]] = []

    def tensor(self, dtype: torch.dtype) -> int:
        """A tensor as input; returns its number, as all of these do."""
        return self._add(Input("tensor", dtype))

    def number(self, value: float | int | bool) -> int:
        """A number as input, of the kind of this one."""
        real = isinstance(value, float)
        return self._add(Input("number", torch.float64 if real else torch.int64))

    def index(self) -> int:
        """An index as input."""
        return self._add(Input("index", torch.int64))

    def _add(self, given: Input) -> int:
        assert not self._steps, "inputs come before steps"
        self._inputs.append(given)
        return len(self._inputs) - 1

    def step(
        self,
        function: str,
        arguments: Sequence[int],
        dtype: torch.dtype,
        common: torch.dtype | None = None,
    ) -> int:
        """A function of values; `common` is the type to which torch promotes its arguments."""
        step = (function, tuple(arguments), dtype, common)
        if step not in self._steps:
            self._steps.append(step)
        return len(self._inputs) + self._steps.index(step)

    def expression(self, *outputs: int) -> Expression:
        """The expression, of which these values are written."""
        dtypes = [given.dtype for given in self._inputs] + [step[2] for step in self._steps]
        steps = tuple(
            ExpressionStep(
                name, args, tuple(_types(name, [dtypes[a] for a in args], dtype, common)), dtype
            )
            for name, args, dtype, common in self._steps
        )
        return Expression(tuple(self._inputs), steps, outputs)


def _types(
    function: str,
    given: Sequence[torch.dtype],
    dtype: torch.dtype,
    common: torch.dtype | None,
) -> list[torch.dtype]:
    """The types in which a function takes arguments of these dtypes."""
    found = []
    for kind, own in zip(takes_of(function), given, strict=True):
        if kind == "s":
            found.append(own)
        else:
            wanted = {"r": dtype, "o": own, "c": common}[kind]
            assert wanted is not None, f"{function} needs the common type of its arguments"
            found.append(WORK[wanted])
    return found
