"""Records every op call of a block, vjps included, with its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from ..engine import interpreter
from ..engine.convert import BOXING
from ..engine.dispatcher import PACKED, arity
from ..engine.op import Attributes, Op
from ..engine.ops.recorded_graph import Recorded
from ..engine.tensor import Tensor
from .samples import word

R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class OpCall:
    """One call of an op on local tensors: `values` as its kernel takes them, then `attrs`.

    A value is a torch tensor, a number given at run time, or None for an absent tensor.
    """

    op: Op
    values: tuple[object, ...]
    attrs: Attributes

    def key(self) -> tuple[object, ...]:
        """Equal for calls that test the same: same op, shapes, dtypes, numbers and attributes."""
        words = tuple(
            (tuple(value.shape), value.dtype)
            if isinstance(value, torch.Tensor)
            else (type(value), value)
            for value in self.values
        )
        return (id(self.op), words, self.attrs)

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [value for value in self.values if isinstance(value, torch.Tensor)]

    def with_tensors(self, tensors: Iterable[object]) -> tuple[object, ...]:
        """The values, with these in place of the tensors in turn."""
        given = iter(tensors)
        return tuple(next(given) if isinstance(v, torch.Tensor) else v for v in self.values)

    def __repr__(self) -> str:
        return f"{self.op.name}({', '.join(map(word, (*self.values, *self.attrs)))})"


@dataclass
class Recorder(interpreter.Interpreter):
    """The interpreter that runs every op eagerly and keeps the first call of each kind."""

    calls: dict[object, OpCall] = field(default_factory=dict)

    def run(self, call: Callable[..., R], op: object, args: tuple[Any, ...]) -> R:
        if isinstance(op, Op) and op is not BOXING:  # which has no rule
            count = arity[call]
            given, attrs = (args[0], args[1:]) if count == PACKED else (args[:count], args[count:])
            # Without gradients the op that records would not be needed.
            for each in (op, op.forward) if isinstance(op, Recorded) else (op,):
                found = OpCall(each, tuple(map(_value, given)), op.attributes(*attrs))
                self.calls.setdefault(found.key(), found)
        with interpreter.using(None):
            return call(*args)


@contextmanager
def record(recorder: Recorder | None = None) -> Iterator[Recorder]:
    """Record the op calls of the block, on local tensors.

    Example:
        >>> x = flow.ones(2, 3, dtype=torch.float64)
        >>> with record() as recorder:
        ...     y = x + x
        >>> list(recorder.calls.values())
        [add(float64[2, 3], float64[2, 3])]
    """
    recorder = Recorder() if recorder is None else recorder
    with interpreter.using(recorder):
        yield recorder


def _value(arg: object) -> object:
    if not isinstance(arg, Tensor):
        return arg
    assert arg.is_local, "record() takes local tensors"
    return arg.shards[0].clone()
