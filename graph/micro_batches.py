"""Micro-batches: a call's inputs cut along dim 0, run in turn, and the outputs joined again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..engine.convert import box
from ..engine.meta import Meta
from ..engine.names import names
from ..engine.ops.dropout import Chance
from ..engine.tensor import Tensor
from ..errors import OnefoldError, OnefoldValueError
from .executor import Call, Executable
from .ir import Program, Step


def micro_metas(metas: Sequence[Meta], count: int) -> list[Meta]:
    """The metas of one micro-batch. Raises OnefoldValueError when a dim 0 cannot be cut so."""
    if count == 1:
        return list(metas)
    found = []
    for index, meta in enumerate(metas):
        if meta.ndim == 0 or meta.shape[0] % count:
            raise OnefoldValueError(
                f"input {index} of the graph has shape {tuple(meta.shape)}, whose dim 0 cannot be "
                f"cut into {count} micro-batches; make the batch divisible, or change "
                "config.set_gradient_accumulation_steps"
            )
        found.append(meta.like(shape=(meta.shape[0] // count, *meta.shape[1:])))
    return found


def place_draws(program: Program, whole: Program, count: int) -> None:
    """Tell each dropout of a micro-batch's program along which dim it is a part of the batch's.

    `whole` is the same build captured for the whole batch. A dropout whose mask does not grow
    with the batch in one dim, or that is not there for the whole batch, draws anew for each.
    """
    mine, theirs = _dropouts(program), _dropouts(whole)
    if len(mine) != len(theirs):
        return
    for (chance, shape), (_, whole_shape) in zip(mine, theirs, strict=True):
        grown = [dim for dim, size in enumerate(shape) if whole_shape[dim] != size]
        if len(grown) == 1 and whole_shape[grown[0]] == count * shape[grown[0]]:
            chance.draw.part = (grown[0], count, 0)


def _dropouts(program: Program) -> list[tuple[Chance, tuple[int, ...]]]:
    """Each dropout, with the shape of its mask."""
    return [
        (given, tuple(step.outputs[0].meta.shape))
        for step in program.steps
        for given in step.inputs
        if type(given) is Chance
    ]


def pieces(inputs: Sequence[Tensor], count: int) -> Iterator[list[Tensor]]:
    """The inputs of each micro-batch, laid out as the whole inputs are."""
    if count == 1 or not inputs:
        for _ in range(count):
            yield list(inputs)
        return
    metas = micro_metas([x.meta for x in inputs], count)
    cut = [names.chunk(x, count, 0) for x in inputs]
    for micro in zip(*cut, strict=True):
        yield [
            x if x.meta is meta or not x.is_global else box(x, meta)
            for x, meta in zip(micro, metas, strict=True)
        ]


def join(results: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Each output of all micro-batches: a scalar gives one entry each, others join on dim 0."""
    return [
        names.stack(parts, 0) if parts[0].ndim == 0 else names.cat(parts, 0)
        for parts in zip(*results, strict=True)
    ]


def add_up(total: Tensor | None, more: Tensor) -> Tensor:
    """The sum over the micro-batches so far and one more value, whose memory others may have.

    The first sum is new memory; from then on it belongs to the sum alone and takes the rest.
    """
    if total is None:
        more.shared = True
        return more
    if total.shared or total.meta is not more.meta:
        return names.add(total, more)  # type: ignore[no-any-return]
    # In a virtual world replicas are one tensor, which must take their common value once.
    pairs = {id(mine): (mine, new) for mine, new in zip(total.shards, more.shards, strict=True)}
    for mine, new in pairs.values():
        mine.add_(new)
    return total


class OneByOne:
    """Runs a program for one micro-batch after the other."""

    def __init__(self, program: Program, count: int) -> None:
        self.program = program
        self.count = count
        self._executable = Executable(program)

    def call_lists(self) -> list[tuple[list[Call], Sequence[Step]]]:
        """All calls, with the steps that they are of."""
        return self._executable.call_lists()

    def run(self, inputs: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """The outputs of all micro-batches, joined, and the means of the gradients."""
        draws = self.program.draws
        draws.take(self.count)
        total: list[Any] = [None] * len(self.program.gradients)
        results = []
        try:
            for index, piece in enumerate(pieces(inputs, self.count)):
                draws.move_to(index)
                outputs, gradients = self._executable.run(piece)
                results.append(outputs)
                total = list(map(add_up, total, gradients))
                del gradients  # else they would be there until the next run is done
        except OnefoldError:
            draws.give_back()
            raise
        if self.count == 1:
            return results[0], total
        return join(results), [names.mul(gradient, 1.0 / self.count) for gradient in total]
