"""Stored layouts: parameters whose layout is changed in place for the program of a graph."""

from __future__ import annotations

from collections.abc import Iterable

from ..engine import boxing
from ..engine.inplace import dense_copies
from ..engine.meta import Meta, blank_shards
from ..engine.tensor import Tensor
from ..engine.views import has_links
from .ir import Program, Variable


def lay_out(tensor: Tensor, target: Meta) -> None:
    """Change the layout of the tensor in place."""
    meta = tensor.meta
    if meta is target:
        return
    if not meta.has_data:
        tensor.shards, tensor.meta = blank_shards(target), target
        return
    plan = boxing.plan(meta, target)
    shards = boxing.run(plan, tensor.shards, op="layout")
    if plan.aliases:  # not a view, which would keep all of the old memory
        shards = dense_copies(shards)
    tensor.shards, tensor.meta = shards, target
    tensor.shared = has_links(tensor)


class StoredLayouts:
    """The parameters for which a graph has chosen layouts, which programs for other inputs keep."""

    def __init__(self) -> None:
        self._chosen: dict[str, Tensor] = {}  # by path

    def open(self, program: Program) -> frozenset[str]:
        """The names of the parameters with a gradient for which nothing was chosen yet."""
        return frozenset(
            variable.value.name
            for variable, _ in program.gradients
            if self._chosen.get(variable.value.name) is not variable.tensor
        )

    def store(self, variables: Iterable[Variable], chosen: frozenset[str]) -> None:
        """Change the parameters with these names to their layouts in a program."""
        for variable in variables:
            if variable.value.name in chosen:
                lay_out(variable.tensor, variable.value.meta)
                self._chosen[variable.value.name] = variable.tensor
