"""Step products: the matrix products and the like in a step, and the flop of a rank's share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ..engine.meta import Meta
from ..engine.op import Op
from .ir import ProgramStep

_HERE = torch.device("cpu")  # of metas that stand for one rank's shard


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product: its flop, and its smallest dim.

    Each element of the largest matrix takes part in as many multiplications as that dim has.
    """

    flop: float
    width: float
    attention: bool
    done: float  # the flop that its kernel does: those of causal attention are half


def products_of(step: ProgramStep, rank: int) -> Iterator[Product]:
    """The matrix products, convolutions and the like in a step, of a rank.

    What ops do with each element alone is bound by memory, and is none.
    """
    for part in step.parts:
        yield from products_of(part, rank)
    op = step.origin if step.op is None else step.op
    if step.parts or not isinstance(op, Op) or type(op).flops is Op.flops:
        return
    inputs = [meta and shard(meta, rank) for meta in step.input_metas]
    outputs = [shard(meta, rank) for meta in step.output_metas]
    here = [meta for meta in outputs if meta is not None]
    flop = op.exact_flops(inputs, here, step.attrs) if len(here) == len(outputs) else 0.0
    if flop:
        largest = max(meta.numel for meta in (*inputs, *here) if meta is not None)
        done = flop * op.flops_fraction(inputs, step.attrs)
        yield Product(flop, flop / (2 * largest), "attention" in step.name, done)


def shard(meta: Meta, rank: int) -> Meta | None:
    """A rank's shard as a meta of its own; None where it has none."""
    if meta.placement is None:
        return meta
    position = meta.placement.position.get(rank)
    if position is None:
        return None
    return Meta.of(meta.local_shape(position), meta.dtype, device=_HERE)
