"""Records what every op and module of a training step returned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import torch

from ..engine import interpreter
from ..engine.convert import BOXING
from ..engine.observer import Observer
from ..engine.op import Op
from ..engine.tensor import Tensor, from_shards
from ..errors import user_line
from .samples import flat

R = TypeVar("R")

# Module, whether in backward, op, shapes of its results, and the how manieth of these.
Key: TypeAlias = tuple[str, bool, str, tuple[torch.Size, ...], int]


@dataclass(frozen=True)
class Call:
    """One call of an op or module, and the tensors that it gave."""

    key: Key
    line: str
    results: list[Tensor]

    def __str__(self) -> str:
        scope, backward, op, _, number = self.key
        of = f" of {scope}" if scope else ""
        what = f"{op}{of}" if op else f"the result of {scope or 'the model'}"
        when = ", in backward" if backward else ""
        again = f", call {number + 1}" if number else ""
        return f"{what}{when}{again} (called at {self.line})"


class CallRecorder(Observer):
    """Keeps every call. Changes of layout are left out, since they depend on the strategy."""

    def __init__(self, named: Mapping[object, str]) -> None:
        super().__init__(interpreter.get_current(), named)
        self.calls: list[Call] = []
        self._counts: Counter[object] = Counter()

    def run(self, call: Callable[..., R], op: object, args: tuple[object, ...]) -> R:
        result = super().run(call, op, args)
        if isinstance(op, Op) and op is not BOXING:
            self._keep(op.name, result)
        return result

    def call_module(
        self,
        module: object,
        forward: Callable[..., R],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> R:
        def call(*args: object, **kwargs: object) -> R:
            result = forward(*args, **kwargs)
            self._keep("", result)
            return result

        return super().call_module(module, call, args, kwargs)

    def _keep(self, name: str, result: object) -> None:
        # Detached by hand, which calls no op: the tape may then free what it keeps.
        tensors = [from_shards(x.shards, x.meta) for x in flat(result, Tensor)]
        key = (self.scope, self.backward, name, tuple(x.shape for x in tensors))
        self.calls.append(Call((*key, self._counts[key]), user_line(), tensors))
        self._counts[key] += 1


@contextmanager
def recorded(recorder: CallRecorder) -> Iterator[None]:
    """Record the calls of the block."""
    with interpreter.using(recorder):
        yield
