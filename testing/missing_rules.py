"""Finds missing rules by brute force: legal layouts that an op does not declare.

Every combination of layouts is tried, and those that turn out to be legal are listed, so that a
missing signature is a choice and not an oversight.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import numpy as np
import torch

from ..engine.placement import Placement
from ..engine.sbp import Sbp, broadcast, partial_max, partial_min, partial_sum, short, split
from .manual_layouts import close, is_floating, is_tiny, join
from .recording import OpCall
from .rules import Layouts, Whole, declared, placement_of, run_shards, whole

# More combinations of layouts than this are not tried.
MAX_COMBINATIONS = 700


def undeclared(found: Whole, parts: Sequence[int] = (2, 3)) -> set[str]:
    """The legal signatures of this op call that its rule does not declare, as text.

    Only dims that give every rank more than one element are split, or smaller tensors would make
    all sorts of layouts legal; for the same reason a signature must hold for other values too,
    and calls whose output is constant have none. Nor are there any for calls with float8 values,
    which torch does not compare.
    """
    texts: set[str] = set()
    if any(map(is_tiny, (*found.call.tensors, *found.outputs))):
        return texts
    others = _stirred(found.call)
    if not _tells(found, others):
        return texts
    for count in parts:
        placement = placement_of((count,))
        known = {(s.inputs, s.outputs) for (s,) in declared(found, (count,))}
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
    if any(is_floating(value) and not bool((value.abs() < 1e12).all()) for value in values):
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
        values = call.with_tensors([_stir(value, random) for value in call.tensors])
        try:
            found.append(whole(OpCall(call.op, values, call.attrs)))
        except (RuntimeError, ValueError, IndexError):
            continue  # these values do not go together
    return found


def _stir(value: torch.Tensor, random: np.random.Generator) -> torch.Tensor:
    if value.dtype.is_floating_point and not _varies(value):
        noise = torch.as_tensor(random.uniform(0.5, 1.5, tuple(value.shape)))
        return value + (noise * (value.abs() + 1)).to(value.dtype)
    if value.dtype == torch.bool and not _varies(value):
        return torch.as_tensor(random.random(tuple(value.shape)) < 0.5)
    order = torch.from_numpy(random.permutation(value.numel()))
    return value.reshape(-1)[order].reshape(value.shape)


def _whole_or_split(value: torch.Tensor, parts: int) -> list[Sbp]:
    return [*(split(dim) for dim, size in enumerate(value.shape) if size > parts), broadcast]


def _candidates(value: torch.Tensor, parts: int) -> list[Sbp]:
    # Random addends of an index lie outside the tensor, which not every kernel of torch checks.
    return [*_whole_or_split(value, parts), *([partial_sum] if is_floating(value) else [])]


def _output_candidates(value: torch.Tensor, parts: int) -> list[Sbp]:
    sums = [] if value.dtype == torch.bool else [partial_sum]
    return [*_whole_or_split(value, parts), partial_max, partial_min, *sums]


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
            return run_shards(found, placement, inputs, outputs, seed)
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


def _varies(value: torch.Tensor) -> bool:
    flat = value.reshape(-1)
    return not close(flat, flat[:1].expand_as(flat))
