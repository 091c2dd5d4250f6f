"""Rules by brute force: every declared signature is run on shards and compared with the whole.

The other way round, every layout that is not declared is tried too, and those that turn out to
be legal are listed, so that a missing signature is a choice and not an oversight.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, TypeAlias

import numpy as np
import torch

from ..engine.meta import Meta
from ..engine.op import Local
from ..engine.placement import Placement
from ..engine.sbp import NdSbp, Sbp, broadcast, partial_max, partial_min, partial_sum, short, split
from ..engine.signature import Axis, Signature, all_broadcast
from .layouts import close, gather, join, rounding, scatter
from .recording import OpCall

Layouts: TypeAlias = Sequence[NdSbp]

# More combinations of layouts than this are not tried in search of undeclared signatures.
MAX_COMBINATIONS = 700
MAX_PAIRS = 16


@dataclass(frozen=True)
class Whole:
    """An op call done on whole values: what every layout must reproduce."""

    call: OpCall
    outputs: tuple[torch.Tensor, ...]
    metas: tuple[Meta, ...]
    tol: float  # the relative difference that reordered arithmetic may show
    shards: dict[Any, dict[int, torch.Tensor]] = field(default_factory=dict)  # made so far


def whole(call: OpCall) -> Whole:
    """Run the call's kernel on its whole values.

    Raises AssertionError when the kernel changes an input, or when `infer` does not tell the
    shape and dtype that the kernel returns.
    """
    metas = [
        Meta.of(value.shape, value.dtype, device=value.device)
        if isinstance(value, torch.Tensor)
        else None
        for value in call.values
    ]
    logical = _infer(call, [_first(m, v) for m, v in zip(metas, call.values, strict=True)])
    local = Local(0, tuple(metas), logical, None)
    before = [value.clone() for value in call.tensors]
    outputs = _tuple(call.op.bind(local, call.attrs)(*call.values))
    for index, (value, old) in enumerate(zip(call.tensors, before, strict=True)):
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
    floats = [rounding(v.dtype) for v in (*call.tensors, *outputs) if _floating(v)]
    copies = tuple(output.clone() for output in outputs)
    return Whole(call, copies, logical, max(floats, default=0.0))


def faults(found: Whole, meshes: Sequence[tuple[int, ...]] = ((2,), (3,), (2, 2))) -> list[str]:
    """What is wrong with the declared signatures of this op call; empty when all are right.

    On a mesh of two axes every pair of signatures is tried, the second as the rule gives it for
    what the first has left of the shapes.
    """
    texts = []
    for mesh in meshes:
        placement = _placement(mesh)
        for signatures in _declared(found, mesh):
            text = _try(found, placement, signatures)
            if text:
                names = " then ".join(map(repr, signatures))
                texts.append(f"{found.call!r} on {mesh} ranks: {names}: {text}")
    return texts


def undeclared(found: Whole, parts: Sequence[int] = (2, 3)) -> set[str]:
    """The legal signatures of this op call that its rule does not declare, as text.

    Only dims that give every rank more than one element are split, or smaller tensors would make
    all sorts of layouts legal; for the same reason a signature must hold for other values too,
    and calls whose output is constant have none.
    """
    texts: set[str] = set()
    others = _stirred(found.call)
    if not _tells(found, others):
        return texts
    for count in parts:
        placement = _placement((count,))
        known = {(s.inputs, s.outputs) for (s,) in _declared(found, (count,))}
        wanted = [_candidates(value, count) for value in found.call.tensors]
        if prod(map(len, wanted)) > MAX_COMBINATIONS:
            continue
        for inputs in product(*wanted):
            for outputs in _useful(inputs, list(_legal(found, placement, inputs))):
                if (inputs, outputs) in known:
                    continue
                again = [found, *others]
                if all(outputs in _legal(other, placement, inputs, 1) for other in again):
                    texts.add(f"{found.call.op.name}: {short(inputs)} -> {short(outputs)}")
    return texts


def _tells(found: Whole, others: Sequence[Whole]) -> bool:
    """Whether the values can tell right from wrong.

    Every output must depend on the inputs, some tensor must have several elements, and no value
    may be so large that random addends vanish in it.
    """
    values = (*found.call.tensors, *found.outputs)
    if any(value.numel() == 0 for value in values) or all(value.numel() == 1 for value in values):
        return False
    if any(_floating(value) and not bool((value.abs() < 1e12).all()) for value in values):
        return False
    return all(
        _varies(output) or any(not close(other.outputs[i], output, found.tol) for other in others)
        for i, output in enumerate(found.outputs)
    )


def _stirred(call: OpCall, count: int = 5) -> list[Whole]:
    """The call on other values of the same kind: elements permuted, constants made to vary."""
    found = []
    for seed in range(count):
        random = np.random.default_rng(seed)
        values = tuple(
            _stir(value, random) if isinstance(value, torch.Tensor) else value
            for value in call.values
        )
        try:
            found.append(whole(OpCall(call.op, values, call.attrs)))
        except (RuntimeError, ValueError, IndexError):
            continue  # these values do not go together
    return found


def _stir(value: torch.Tensor, random: np.random.Generator) -> torch.Tensor:
    if value.dtype.is_floating_point and not _varies(value):
        noise = torch.from_numpy(np.asarray(random.uniform(0.5, 1.5, tuple(value.shape))))
        return value + (noise * (value.abs() + 1)).to(value.dtype)
    if value.dtype == torch.bool and not _varies(value):
        return torch.from_numpy(np.asarray(random.random(tuple(value.shape)) < 0.5))
    order = torch.from_numpy(random.permutation(value.numel()))
    return value.reshape(-1)[order].reshape(value.shape)


# Declared signatures.


def _declared(found: Whole, mesh: Sequence[int]) -> list[tuple[Signature, ...]]:
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
    placement = _placement((parts,))
    remaining = iter(shapes)
    described = [
        Meta.of(next(remaining), value.dtype, placement, (broadcast,))
        if isinstance(value, torch.Tensor)
        else value
        for value in call.values
    ]
    logical = tuple(tuple(value.shape) for value in call.tensors)
    rule = call.op.rule(Axis(parts, tuple(ragged), logical), *described, *call.attrs)
    return [*rule, all_broadcast(len(shapes), len(found.outputs))]


def _split(
    shapes: list[tuple[int, ...]],
    ragged: list[frozenset[int]],
    signature: Signature,
    parts: int,
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
    if found.call.op.instead(metas, found.call.attrs) is not None:
        return ""  # these layouts run smaller ops, which are checked as such
    try:
        results = _run(found, placement, inputs, outputs)
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


# Undeclared signatures.


def _candidates(value: torch.Tensor, parts: int) -> list[Sbp]:
    splits = [split(dim) for dim, size in enumerate(value.shape) if size > parts]
    # Random addends of an index lie outside the tensor, which not every kernel of torch checks.
    return [*splits, broadcast, *([partial_sum] if _floating(value) else [])]


def _output_candidates(value: torch.Tensor, parts: int) -> list[Sbp]:
    splits = [split(dim) for dim, size in enumerate(value.shape) if size > parts]
    partials = [partial_max, partial_min]
    if value.dtype != torch.bool:
        partials.append(partial_sum)
    return [*splits, broadcast, *partials]


def _legal(
    found: Whole, placement: Placement, inputs: Sequence[Sbp], seed: int = 0
) -> Iterator[tuple[Sbp, ...]]:
    """The output layouts that reproduce the whole from inputs laid out like this."""
    nd_inputs = [(sbp,) for sbp in inputs]
    (parts,) = placement.shape
    wanted = [_output_candidates(output, parts) for output in found.outputs]
    if not found.call.op.depends_on_position:
        results = _results(found, placement, nd_inputs, [(broadcast,)] * len(wanted), seed)
        fitting = [
            [sbp for sbp in some if results and _fits(results[i], sbp, found.outputs[i], found.tol)]
            for i, some in enumerate(wanted)
        ]
        yield from product(*fitting)
        return
    for outputs in product(*wanted) if len(wanted) < 3 else zip(*wanted, strict=False):
        results = _results(found, placement, nd_inputs, [(sbp,) for sbp in outputs], seed)
        if results and all(
            _fits(results[i], sbp, found.outputs[i], found.tol) for i, sbp in enumerate(outputs)
        ):
            yield outputs


def _results(
    found: Whole, placement: Placement, inputs: Layouts, outputs: Layouts, seed: int
) -> list[list[torch.Tensor]]:
    """What the ranks' kernels make, per output; nothing where they fail on these layouts."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of layouts that make no sense
            return _run(found, placement, inputs, outputs, seed)
    except (RuntimeError, ValueError, IndexError, TypeError, AssertionError):
        return []


def _fits(shards: Sequence[torch.Tensor], sbp: Sbp, wanted: torch.Tensor, tol: float) -> bool:
    joined = join(shards, sbp, tol)
    return joined is not None and close(joined, wanted, tol)


def _useful(inputs: Sequence[Sbp], legal: Sequence[tuple[Sbp, ...]]) -> list[tuple[Sbp, ...]]:
    """The output layouts worth listing.

    Replicated inputs have no better one than broadcast. Equal values are their own maxima and
    minima too, and values that only one rank has (others zero) may seem to be.
    """
    if all(sbp is broadcast for sbp in inputs):
        return []
    return [
        outputs
        for outputs in legal
        if not any(
            other in (broadcast, partial_sum)
            for found in legal
            for sbp, other in zip(outputs, found, strict=True)
            if sbp in (partial_max, partial_min)
        )
    ]


# Running.


def _run(
    found: Whole, placement: Placement, inputs: Layouts, outputs: Layouts, seed: int = 0
) -> list[list[torch.Tensor]]:
    """Per output, the shards that the ranks' kernels make of the inputs' shards."""
    call = found.call
    metas = _laid_out(found, placement, inputs)
    produced = tuple(
        _global(meta, placement, nd_sbp) for meta, nd_sbp in zip(found.metas, outputs, strict=True)
    )
    layouts = iter(enumerate(inputs))
    values: list[Any] = []
    for value in call.values:
        if isinstance(value, torch.Tensor):
            index, nd_sbp = next(layouts)
            key = (index, placement, nd_sbp, seed)
            if key not in found.shards:
                found.shards[key] = scatter(value, placement, nd_sbp, seed * 100 + index)
            values.append(found.shards[key])
        else:
            values.append(value)
    results: list[list[torch.Tensor]] = [[] for _ in outputs]
    for position in range(placement.num_ranks):
        kernel = call.op.bind(Local(position, metas, produced, placement), call.attrs)
        mine = [value[position] if isinstance(value, dict) else value for value in values]
        for shards, shard in zip(results, _tuple(kernel(*mine)), strict=True):
            shards.append(shard)
    return results


def _laid_out(found: Whole, placement: Placement, inputs: Layouts) -> tuple[Meta | None, ...]:
    layouts = iter(inputs)
    return tuple(
        Meta.of(value.shape, value.dtype, placement, next(layouts))
        if isinstance(value, torch.Tensor)
        else None
        for value in found.call.values
    )


def _global(meta: Meta, placement: Placement, nd_sbp: NdSbp) -> Meta:
    return Meta.of(meta.shape, meta.dtype, placement, nd_sbp)


def _placement(mesh: Sequence[int]) -> Placement:
    return Placement("cpu", torch.arange(prod(mesh)).reshape(tuple(mesh)).tolist())


def _infer(call: OpCall, described: Sequence[Any]) -> tuple[Meta, ...]:
    found = call.op.infer(*described, *call.attrs)
    return found if isinstance(found, tuple) else (found,)


def _first(meta: Meta | None, value: Any) -> Any:
    return value if meta is None else meta


def _tuple(results: Any) -> tuple[torch.Tensor, ...]:
    return (results,) if isinstance(results, torch.Tensor) else tuple(results)


def _varies(value: torch.Tensor) -> bool:
    flat = value.reshape(-1)
    return not close(flat, flat[:1].expand_as(flat))


def _floating(value: torch.Tensor) -> bool:
    return value.dtype.is_floating_point or value.dtype.is_complex
