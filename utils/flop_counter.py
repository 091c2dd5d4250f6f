"""FlopCounterMode: the arithmetic of products, convolutions and attention, by module and op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self, TypeVar

from ..distributed.comm_log import table
from ..engine import interpreter
from ..engine.autocast import observing
from ..engine.dispatcher import PACKED, arity
from ..engine.observer import Observer
from ..engine.op import Op
from ..engine.tensor import Tensor
from ..nn.module import Module

__all__ = ["FlopCounterMode"]

R = TypeVar("R")
_ALL = "Global"


class FlopCounterMode:
    """Counts the floating point operations of the block, also those of gradients.

    Those of the whole logical tensors, two for a multiplication and an addition, of products,
    convolutions, attention and recurrent layers; other ops count as nothing, as in torch. With
    `display` a table is printed at the end, with modules of up to `depth` names. Steps that a
    captured graph runs are not seen.

    >>> import onefold as flow
    >>> with flow.utils.flop_counter.FlopCounterMode(display=False) as counter:
    ...     y = flow.nn.Linear(3, 5)(flow.ones(2, 3))
    >>> counter.get_total_flops(), counter.get_flop_counts()["Linear"]
    (60, {'linear': 60})
    """

    def __init__(
        self,
        mods: Module | list[Module] | None = None,
        depth: int = 2,
        display: bool = True,
        custom_mapping: dict[Any, Any] | None = None,
    ) -> None:
        self.depth = depth
        self.display = display
        self._counts: dict[str, Counter[str]] = {_ALL: Counter()}
        self._block = ExitStack()

    def __enter__(self) -> Self:
        self._counts = {_ALL: Counter()}
        self._block = ExitStack()
        self._block.enter_context(observing(_Counting(self._counts)))
        return self

    def __exit__(self, *exc: object) -> None:
        self._block.close()
        if self.display:
            print(self.get_table(self.depth))  # noqa: T201 - asked for by display=True

    def get_total_flops(self) -> int:
        """All of them."""
        return sum(self._counts[_ALL].values())

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """Those of each op, by the module whose forward or gradient it was; "Global" has all."""
        return {name: dict(counts) for name, counts in self._counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """A row for each module of up to `depth` names, and its ops."""
        most = self.depth if depth is None else depth
        total = max(self.get_total_flops(), 1)
        lines = [["Module", "FLOP", "% Total"]]
        for name, counts in self._counts.items():
            level = 0 if name == _ALL else name.count(".") + 1
            if level <= most:
                rows = [
                    (name, sum(counts.values())),
                    *((f" - {op}", n) for op, n in counts.items()),
                ]
                lines += [
                    [" " * level + row, f"{count:,}", f"{count / total:.2%}"] for row, count in rows
                ]
        return table(lines)


class _Counting(Observer):
    """Adds what each op counts to its module and those around."""

    def __init__(self, counts: dict[str, Counter[str]]) -> None:
        super().__init__(interpreter.get_current())
        self._counts = counts

    def run(self, call: Callable[..., R], op: Any, args: tuple[Any, ...]) -> R:
        result = super().run(call, op, args)
        if isinstance(op, Op) and type(op).flops is not Op.flops:
            number = arity[call]
            packed = number == PACKED
            given, attrs = (args[0], args[1:]) if packed else (args[:number], args[number:])
            inputs = [x.meta if isinstance(x, Tensor) else None for x in given]
            made = result if isinstance(result, tuple) else (result,)
            outputs = [y.meta for y in made if isinstance(y, Tensor)]
            self._add(op.name, round(op.exact_flops(inputs, outputs, attrs)))
        return result

    def _add(self, name: str, count: int) -> None:
        parts = self.scope.split(".") if self.scope else []
        around = [".".join(parts[: size + 1]) for size in range(len(parts))]
        for scope in (_ALL, *around):
            self._counts.setdefault(scope, Counter())[name] += count
