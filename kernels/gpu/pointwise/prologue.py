"""Prologues: a pointwise chain that a reduction computes while it loads its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256

import torch
import triton
from torch import Tensor

from .codegen import kind_of, steps_of
from .expression import Expression, Writer
from .scalar_functions import cast
from .triton_functions import from_text

MAX_INPUTS = 4


@dataclass(frozen=True, slots=True)
class Prologue:
    """`function` of dense tensors of one shape, element by element; what a reduction asks of it.

    The tensors are in row-major order; or they are views so, and have the dims of what the
    prologue stands for in this `order`.

    The function takes `MAX_INPUTS` values, of which it uses as many as there are tensors. What it
    gives is written to `whole`, if that is there.
    """

    tensors: tuple[Tensor, ...]
    function: object  # of Triton
    dtype: torch.dtype
    whole: Tensor | None = None
    order: tuple[int, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        shape = self.tensors[0].shape
        order = range(len(shape)) if self.order is None else self.order
        return tuple([shape[order.index(dim)] for dim in range(len(shape))])

    @property
    def ndim(self) -> int:
        return self.tensors[0].ndim

    @property
    def device(self) -> torch.device:
        return self.tensors[0].device

    def numel(self) -> int:
        return self.tensors[0].numel()

    def contiguous(self) -> Prologue:
        return self

    def in_memory_order(self) -> Prologue:
        """The same with its dims as they lie in memory."""
        return replace(self, order=None)


@lru_cache(maxsize=1024)
def function_of(
    expression: Expression,
    numbers: Sequence[float | int],
    places: tuple[int, ...] | None = None,
    count: int = MAX_INPUTS,
) -> object:
    """A function of Triton for the outputs of an expression, with its numbers in it.

    It takes `count` values. The tensors of the expression are the first, or those at `places`.
    """
    body = _body(expression, numbers, places or tuple(range(count)))
    # Triton takes functions of one name for one function, and a kernel may call several of these.
    name = f"chain_{sha256(body.encode()).hexdigest()[:12]}"
    values = ", ".join(f"x{i}" for i in range(count))
    text = f"def {name}({values}):\n{body}"
    return triton.jit(from_text(text, name, __name__=__name__, cast=cast))


def _body(expression: Expression, numbers: Sequence[float | int], places: Sequence[int]) -> str:
    tensors = len(expression.inputs) - len(numbers)
    lines = [f"    v{i} = x{places[i]}" for i in range(tensors)]
    for i, number in enumerate(numbers, tensors):
        literal = repr(number) if abs(number) < float("inf") else f'float("{number}")'
        lines.append(f"    v{i} = tl.full((), {literal}, {kind_of(expression.inputs[i].dtype)})")
    lines += [f"    {line}" for line in steps_of(expression)]
    results = [f"cast(v{i}, {kind_of(expression.dtype(i))})" for i in expression.outputs]
    lines.append(f"    return {', '.join(results)}")
    return "\n".join(lines) + "\n"


def gelu_and_sum(dtype: torch.dtype) -> Expression:
    """x + gelu(v): an example to compile."""
    w = Writer()
    v, x = w.tensor(dtype), w.tensor(dtype)
    return w.expression(w.step("add", [x, w.step("gelu_half", [v], dtype)], dtype))
