"""A random program under construction, and what is known of its values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from hypothesis import strategies as st

from ..engine.meta import Shape
from ..engine.placement import Ranks
from ..engine.sbp import NdSbp
from .program_calls import STEPS, TORCH
from .sample_checks import cotangent
from .strategies import nd_sbps

FLOAT = torch.float64


@dataclass(frozen=True)
class Input:
    """A leaf of a program: random values, laid out by hand."""

    shape: Shape
    dtype: torch.dtype
    placement: int
    nd_sbp: NdSbp
    high: int = 2  # integers are below it

    def values(self, seed: int) -> torch.Tensor:
        if self.dtype == FLOAT:
            return cotangent(self.shape, self.dtype, seed)
        random = np.random.default_rng(seed)
        return torch.as_tensor(random.integers(0, self.high, self.shape)).to(self.dtype)


@dataclass(frozen=True)
class CallStep:
    """One op call: a name of `program_calls.STEPS`, positions of its inputs, its attributes."""

    name: str
    inputs: tuple[int, ...]
    attrs: tuple[object, ...] = ()


@dataclass(frozen=True)
class Entry:
    """What is known of a value when the next step is drawn."""

    shape: Shape
    dtype: torch.dtype
    placement: int
    exact: bool  # computed without rounding, so ops with kinks may see it

    @property
    def ndim(self) -> int:
        return len(self.shape)


class Builder:
    """A program under construction, with what is known of each value."""

    def __init__(self, draw: st.DrawFn, placements: tuple[Ranks, ...], partial: bool) -> None:
        self.draw = draw
        self.placements = placements
        self.partial = partial
        self.items: list[Input | CallStep] = []
        self.entries: list[Entry] = []

    def input(
        self, shape: Sequence[int], placement: int, dtype: torch.dtype = FLOAT, high: int = 2
    ) -> int:
        """Add a leaf; returns its position."""
        entry = Entry(tuple(shape), dtype, placement, exact=True)
        nd_sbp = self._layout(entry, placement)
        return self._add(Input(entry.shape, dtype, placement, nd_sbp, high), entry)

    def step(self, name: str, *inputs: int, attrs: tuple[object, ...] = ()) -> int:
        """Add a step; returns its position."""
        found = [self.entries[i] for i in inputs]
        given = [torch.empty(entry.shape, dtype=entry.dtype, device="meta") for entry in found]
        result = STEPS[name](TORCH, *given, *attrs)
        entry = Entry(tuple(result.shape), result.dtype, found[0].placement, exact=False)
        return self._add(CallStep(name, inputs, attrs), entry)

    def to_global(self, index: int, placement: int) -> int:
        """Add a step that moves value `index` to a placement; returns its position."""
        entry = self.entries[index]
        step = CallStep("to_global", (index,), (placement, self._layout(entry, placement)))
        return self._add(step, replace(entry, placement=placement))

    def moved(self, index: int, placement: int) -> int:
        """The position of value `index` on a placement, moved there if need be."""
        if self.entries[index].placement == placement:
            return index
        return self.to_global(index, placement)

    def pick(self, allowed: Callable[[Entry], bool]) -> int | None:
        """One of the values that are allowed, or None."""
        found = [index for index, entry in enumerate(self.entries) if allowed(entry)]
        return self.draw(st.sampled_from(found)) if found else None

    def _add(self, item: Input | CallStep, entry: Entry) -> int:
        self.items.append(item)
        self.entries.append(entry)
        return len(self.items) - 1

    def _layout(self, entry: Entry, placement: int) -> NdSbp:
        partial = self.partial and entry.dtype != torch.bool
        return self.draw(nd_sbps(entry.shape, np.ndim(self.placements[placement]), partial))
