"""Checks rules by brute force: every declared signature is run on shards and compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

import torch

from ..engine.meta import Meta
from ..engine.op import Local
from ..engine.placement import Placement
from ..engine.sbp import NdSbp, broadcast, partial_sum
from ..engine.signature import Axis, Signature, all_broadcast
from .manual_layouts import close, gather, is_floating, is_tiny, rounding, scatter
from .recording import OpCall

Layouts: TypeAlias = Sequence[NdSbp]

MAX_PAIRS = 16


@dataclass(frozen=True)
class Whole:
    """An op call done on whole values: what every layout must reproduce."""

    call: OpCall
    outputs: tuple[torch.Tensor, ...]
    metas: tuple[Meta, ...]
    tol: float  # the relative difference that reordered arithmetic may show
    # What was made so far, of an input in a layout, and of all inputs in theirs.
    shards: dict[object, dict[int, torch.Tensor]] = field(default_factory=dict)
    laid_out: dict[object, tuple[Meta | None, ...]] = field(default_factory=dict)


def whole(call: OpCall) -> Whole:
    """Run the call's kernel on its whole values.

    Raises AssertionError when the kernel changes an input, or when `infer` does not tell the
    shape and dtype that the kernel returns.
    """
    described = call.with_tensors(Meta.of(v.shape, v.dtype, device=v.device) for v in call.tensors)
    inferred = call.op.infer(*described, *call.op.attribute_args(call.attrs))
    logical = inferred if isinstance(inferred, tuple) else (inferred,)
    local = Local(0, _metas(described), logical, None)
    before = [value.clone() for value in call.tensors]
    outputs = _tuple(call.op.bind(local, call.attrs)(*call.values))
    for index, (value, old) in enumerate(zip(call.tensors, before, strict=True)):
        if is_tiny(value):
            value, old = value.float(), old.float()
        same = torch.allclose(value, old, rtol=0, atol=0, equal_nan=True)
        assert same, f"{call!r}: the kernel changed input {index}"
    assert len(outputs) == len(logical) == call.op.num_outputs, (
        f"{call!r}: num_outputs is {call.op.num_outputs}, infer tells {len(logical)} and the "
        f"kernel returns {len(outputs)}"
    )
    for index, (output, meta) in enumerate(zip(outputs, logical, strict=True)):
        assert (output.shape, output.dtype) == (meta.shape, meta.dtype), (
            f"{call!r}: infer tells {meta!r} for output {index}, but the kernel returns "
            f"{output.dtype} {tuple(output.shape)}"
        )
    floats = [rounding(v.dtype) for v in (*call.tensors, *outputs) if is_floating(v)]
    copies = tuple(output.clone() for output in outputs)
    return Whole(call, copies, logical, max(floats, default=0.0))


def faults(found: Whole, meshes: Sequence[tuple[int, ...]] = ((2,), (3,), (2, 2))) -> list[str]:
    """What is wrong with the declared signatures of this op call; empty when all are right.

    On a mesh of two axes every pair of signatures is tried, the second as the rule gives it for
    what the first has left of the shapes.
    """
    texts = []
    for mesh in meshes:
        placement = placement_of(mesh)
        for signatures in declared(found, mesh):
            text = _try(found, placement, signatures)
            if text:
                names = " then ".join(map(repr, signatures))
                texts.append(f"{found.call!r} on {mesh} ranks: {names}: {text}")
    return texts


# Declared signatures.


def declared(found: Whole, mesh: Sequence[int]) -> list[tuple[Signature, ...]]:
    """The combinations of signatures, one per axis, as the rule gives them axis by axis."""
    shapes = [tuple(value.shape) for value in found.call.tensors]
    chosen: list[tuple[tuple[Signature, ...], list[tuple[int, ...]], list[frozenset[int]]]] = [
        ((), shapes, [frozenset()] * len(shapes))
    ]
    for parts in mesh:
        chosen = [
            ((*before, signature), *_split(sizes, ragged, signature, parts))
            for before, sizes, ragged in chosen
            for signature in _rule(found, parts, sizes, ragged)
        ]
    combinations = [signatures for signatures, _, _ in chosen]
    stride = max(1, len(combinations) // MAX_PAIRS) if len(mesh) > 1 else 1
    return combinations[::stride]


def _rule(
    found: Whole, parts: int, shapes: list[tuple[int, ...]], ragged: list[frozenset[int]]
) -> list[Signature]:
    call = found.call
    placement = placement_of((parts,))
    described = call.with_tensors(
        Meta.of(shape, value.dtype, placement, (broadcast,))
        for shape, value in zip(shapes, call.tensors, strict=True)
    )
    logical = tuple(tuple(value.shape) for value in call.tensors)
    rule = call.op.rule(
        Axis(parts, tuple(ragged), logical), *described, *call.op.attribute_args(call.attrs)
    )
    return [*rule, all_broadcast(len(shapes), len(found.outputs))]


def _split(
    shapes: list[tuple[int, ...]], ragged: list[frozenset[int]], signature: Signature, parts: int
) -> tuple[list[tuple[int, ...]], list[frozenset[int]]]:
    """What the next axis sees: the largest shard's shape, and the dims split unevenly."""
    new_shapes, new_ragged = [], []
    for shape, uneven, sbp in zip(shapes, ragged, signature.inputs, strict=False):
        if sbp.is_split and sbp.dim < len(shape):
            size = shape[sbp.dim]
            shape = (*shape[: sbp.dim], -(-size // parts), *shape[sbp.dim + 1 :])
            if size % parts:
                uneven |= {sbp.dim}
        new_shapes.append(shape)
        new_ragged.append(uneven)
    return new_shapes, new_ragged


def _try(found: Whole, placement: Placement, signatures: Sequence[Signature]) -> str:
    """Why this combination is wrong, or ""."""
    tensors = found.call.tensors
    for signature in signatures:
        if len(signature.inputs) != len(tensors) or len(signature.outputs) != len(found.outputs):
            return (
                f"it is for {len(signature.inputs)} inputs and {len(signature.outputs)} outputs, "
                f"the op has {len(tensors)} and {len(found.outputs)}"
            )
    inputs = [tuple(s.inputs[i] for s in signatures) for i in range(len(tensors))]
    outputs = [tuple(s.outputs[i] for s in signatures) for i in range(len(found.outputs))]
    for index, (value, nd_sbp) in enumerate(zip(tensors, inputs, strict=True)):
        if any(sbp.is_split and sbp.dim >= value.ndim for sbp in nd_sbp):
            return f"input {index} has only {value.ndim} dims"
        if value.dtype == torch.bool and partial_sum in nd_sbp:
            return f"input {index} is bool, which has no partial sum"
    metas = _laid_out(found, placement, inputs)
    if found.call.op.decompose(metas, found.call.attrs) is not None:
        return ""  # these layouts run smaller ops, which are checked as such
    try:
        results = run_shards(found, placement, inputs, outputs)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        return f"the kernel fails: {str(error).splitlines()[0]}"
    for index, (shards, nd_sbp, meta) in enumerate(zip(results, outputs, found.metas, strict=True)):
        if any(sbp.is_split and sbp.dim >= meta.ndim for sbp in nd_sbp):
            return f"output {index} has only {meta.ndim} dims"
        produced = _global(meta, placement, nd_sbp)
        for position, shard in enumerate(shards):
            if tuple(shard.shape) != produced.local_shape(position) or shard.dtype != meta.dtype:
                return (
                    f"output {index} on position {position} is {shard.dtype} "
                    f"{tuple(shard.shape)}, not {meta.dtype} {produced.local_shape(position)}"
                )
        joined = gather(shards, placement, nd_sbp, found.tol)
        if joined is None or not close(joined, found.outputs[index], found.tol):
            return f"output {index} is wrong"
    return ""


# Running.


def run_shards(
    found: Whole, placement: Placement, inputs: Layouts, outputs: Layouts, seed: int = 0
) -> list[list[torch.Tensor]]:
    """Per output, the shards that the ranks' kernels make of the inputs' shards."""
    call = found.call
    metas = _laid_out(found, placement, inputs)
    produced = tuple(
        _global(meta, placement, nd_sbp) for meta, nd_sbp in zip(found.metas, outputs, strict=True)
    )
    laid_out = []
    for index, (value, nd_sbp) in enumerate(zip(call.tensors, inputs, strict=True)):
        key = (index, placement, nd_sbp, seed)
        if key not in found.shards:
            found.shards[key] = scatter(value, placement, nd_sbp, seed * 100 + index)
        laid_out.append(found.shards[key])
    results: list[list[torch.Tensor]] = [[] for _ in outputs]
    for position in range(placement.num_ranks):
        kernel = call.op.bind(Local(position, metas, produced, placement), call.attrs)
        mine = call.with_tensors(each[position] for each in laid_out)
        for shards, shard in zip(results, _tuple(kernel(*mine)), strict=True):
            shards.append(shard)
    return results


def _laid_out(found: Whole, placement: Placement, inputs: Layouts) -> tuple[Meta | None, ...]:
    key = (placement, tuple(inputs))
    if key not in found.laid_out:
        tensors = zip(found.call.tensors, inputs, strict=True)
        metas = [Meta.of(value.shape, value.dtype, placement, nd_sbp) for value, nd_sbp in tensors]
        found.laid_out[key] = _metas(found.call.with_tensors(metas))
    return found.laid_out[key]


def _metas(described: Sequence[object]) -> tuple[Meta | None, ...]:
    """Of each value its meta; None for what is no tensor."""
    return tuple(each if isinstance(each, Meta) else None for each in described)


def _global(meta: Meta, placement: Placement, nd_sbp: NdSbp) -> Meta:
    return Meta.of(meta.shape, meta.dtype, placement, nd_sbp)


def placement_of(mesh: Sequence[int]) -> Placement:
    """The placement with a mesh of this shape on ranks 0, 1, ..."""
    return Placement("cpu", torch.arange(prod(mesh)).reshape(tuple(mesh)).tolist())


def _tuple(results: torch.Tensor | Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return (results,) if isinstance(results, torch.Tensor) else tuple(results)
