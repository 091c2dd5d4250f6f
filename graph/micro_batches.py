"""Micro-batches: a call's inputs cut along dim 0, and the outputs of all of them joined again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..engine.convert import box
from ..engine.meta import Meta
from ..engine.names import names
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError


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


def pieces(inputs: Sequence[Tensor], count: int) -> Iterator[list[Tensor]]:
    """The inputs of each micro-batch, laid out as the whole inputs are."""
    cut = [names.chunk(x, count, 0) for x in inputs]
    for index, micro in enumerate(zip(*cut, strict=True)):
        metas = micro_metas([x.meta for x in inputs], count)
        assert index < count
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
