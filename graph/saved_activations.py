"""Saved activations: the names of what a checkpointed module makes, and which of it is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from fnmatch import fnmatchcase

from ..errors import OnefoldValueError
from .ir import ProgramStep


class ActivationNames:
    """Names the results of the steps of one call of a module, in the order of the steps.

    A name is the module inside, the op, and a number from the second one on.

    >>> names = ActivationNames("model.blocks.0")
    >>> names.name("model.blocks.0.up", "linear"), names.name("model.blocks.0", "add")
    ('up.linear', 'add')
    >>> names.name("model.blocks.0", "add")
    'add_1'
    """

    def __init__(self, module: str) -> None:
        self.module = module
        self._counts: Counter[str] = Counter()

    def name(self, scope: str, op: str) -> str:
        """The name of the result of an op in the module `scope`."""
        inside = scope.removeprefix(self.module).removeprefix(".")
        op = op.removesuffix("_with_stats")  # which users know by the name before
        plain = f"{inside}.{op}" if inside else op
        number = self._counts[plain]
        self._counts[plain] += 1
        return f"{plain}_{number}" if number else plain


class SavedActivations:
    """The activations that `saved_activations` of a checkpointed module selects in one call."""

    def __init__(self, patterns: Sequence[str], module: str) -> None:
        self._patterns = patterns
        self._unused = dict.fromkeys(patterns)
        self._names = ActivationNames(module)
        self._made: list[str] = []

    def has(self, scope: str, op: str) -> bool:
        """Whether the result of an op in the module `scope` is saved; called once for each."""
        name = self._names.name(scope, op)
        self._made.append(name)
        found = [each for each in self._patterns if fnmatchcase(name, each)]
        for each in found:
            self._unused.pop(each, None)
        return bool(found)

    def check(self) -> None:
        """Raise OnefoldValueError for an entry that matches no activation of the module."""
        if self._unused:
            raise OnefoldValueError(
                f"saved_activations of {self._names.module or 'the module'} has "
                f"{', '.join(map(repr, self._unused))}, which is nothing that it makes in forward; "
                f"it makes {', '.join(self._made)}. Write such names, or patterns of them"
            )


def is_activation(step: ProgramStep, outside: Container[int]) -> bool:
    """Whether what a step makes has a name: not what follows from `outside`, variables, alone."""
    return any(value.number not in outside for value in step.reads())
