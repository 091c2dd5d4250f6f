"""Checks a sample against torch: value, gradient and second gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
import torch

from ..distributed.world import world
from ..engine.autograd import grad
from ..engine.names import Function
from ..engine.placement import Placement
from ..engine.sbp import NdSbp, Sbp, broadcast, partial_sum, split
from ..engine.tensor import Tensor
from ..engine.values import whole
from .manual_layouts import gather, is_floating, make_global, make_local, rounding
from .samples import Sample

X = TypeVar("X", torch.Tensor, Tensor)
Change: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
Values: TypeAlias = Sequence["torch.Tensor | None"]


@dataclass(frozen=True)
class Results:
    """What a sample gives: outputs, gradients of the floating arguments, and gradients of those.

    The second gradients are for the arguments and then for the cotangents; None where there is
    no double gradient. A single None stands for zeros.
    """

    outputs: Values
    grads: Values
    second: Values | None


def reference(sample: Sample, change: Change = torch.clone, second: bool = True) -> Results:
    """The sample's results in torch, with the double gradient where torch has one.

    `change` is applied to the values of the arguments and the cotangents before they are used.
    """
    return _results(sample.run_torch, sample, change, torch.autograd.grad, lambda x: x, second)


def local_results(
    sample: Sample, second: bool = True, change: Change = lambda value: value
) -> Results:
    """The sample's results in onefold on local tensors, where `change` puts them."""
    return _results(
        sample.run, sample, lambda value: make_local(change(value)), grad, value_of, second
    )


def global_results(
    sample: Sample,
    placement: Placement,
    nd_sbps: Sequence[NdSbp],
    second: bool = False,
    change: Change = lambda value: value,
) -> Results:
    """The sample's results in onefold with its tensor arguments laid out by hand."""
    values = sample.tensors()
    laid_out = iter(nd_sbps)

    def make(value: torch.Tensor) -> Tensor:
        nd_sbp = next(laid_out, (broadcast,) * placement.ndim)  # cotangents are replicated
        return make_global(change(value), placement, nd_sbp, sample.seed)

    assert len(nd_sbps) == len(values)
    return _results(sample.run, sample, make, grad, value_of, second)


def compare(found: Results, wanted: Results, tol: float) -> str:
    """In what the results differ, or ""; second gradients are compared where both have them."""
    texts = [differences("output", found.outputs, wanted.outputs, tol)]
    texts.append(differences("gradient", found.grads, wanted.grads, tol))
    if found.second is not None and wanted.second is not None:
        texts.append(differences("second gradient", found.second, wanted.second, 100 * tol))
    return "; ".join(filter(None, texts))


def value_of(tensor: Tensor) -> torch.Tensor:
    """The logical value; in a virtual world, where all shards are here, joined by hand.

    Raises AssertionError when the shards are not those of one value (replicas differ, or sizes
    are not balanced).
    """
    placement = tensor.meta.placement
    if placement is None:
        return tensor.shards[0]
    if world().launched:
        return whole(tensor)
    value = gather(tensor.shards, placement, tensor.meta.nd_sbp)
    assert value is not None, f"the shards of {tensor.meta!r} do not belong together"
    assert (value.shape, value.dtype) == (tensor.shape, tensor.dtype), (
        f"the shards of {tensor.meta!r} make {value.dtype} {tuple(value.shape)}"
    )
    return value


def spread(
    values: Sequence[torch.Tensor], placement: Placement, limit: int, seed: int
) -> Iterator[tuple[NdSbp, ...]]:
    """Up to `limit` combinations of layouts in which, in turn, each tensor takes each layout."""
    random = np.random.default_rng(seed)
    choices = [sbps_of(value) for value in values]

    def any_layout(index: int) -> NdSbp:
        return tuple(
            choices[index][int(random.integers(len(choices[index])))] for _ in range(placement.ndim)
        )

    turns = [(index, sbp) for index, found in enumerate(choices) for sbp in found]
    for turn in random.permutation(len(turns))[:limit]:
        index, sbp = turns[turn]
        nd_sbps = [any_layout(other) for other in range(len(values))]
        axis = int(random.integers(placement.ndim))
        nd_sbps[index] = (*nd_sbps[index][:axis], sbp, *nd_sbps[index][axis + 1 :])
        yield tuple(nd_sbps)


def cotangent(shape: Sequence[int], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """A random tensor, the same on every process; not the values of a sample of this seed."""
    random = np.random.default_rng([seed, 1])
    values = torch.as_tensor(random.standard_normal(tuple(shape)))
    if dtype.is_complex:
        values = values + 1j * torch.as_tensor(random.standard_normal(tuple(shape)))
    return values.to(dtype)


def random_gradients(
    ends: dict[int, X],
    leaves: Sequence[X],
    as_seed: Callable[[torch.Tensor, X], X],
    gradients: Callable[..., Sequence[X | None]],
    seed: int,
) -> Sequence[X | None]:
    """The leaves' gradients for random ones of `ends`, whose keys tell these apart."""
    if not leaves or not ends:
        return [None] * len(leaves)
    seeds = [as_seed(cotangent(x.shape, x.dtype, seed + key), x) for key, x in ends.items()]
    return gradients([*ends.values()], leaves, seeds, allow_unused=True)


def difference(found: torch.Tensor | None, wanted: torch.Tensor | None, tol: float) -> str:
    """In what two values differ, or "" when they agree; None stands for zeros."""
    if found is None or wanted is None:
        present = wanted if found is None else found
        if present is None or bool((present == 0).all()):
            return ""
        return "is missing" if found is None else "should not be there"
    if found.shape != wanted.shape:
        return f"has shape {tuple(found.shape)} instead of {tuple(wanted.shape)}"
    if found.dtype != wanted.dtype:
        return f"has dtype {found.dtype} instead of {wanted.dtype}"
    if not is_floating(wanted):
        return "" if torch.equal(found, wanted) else "has different values"
    tol = max(tol, rounding(wanted.dtype))
    if torch.allclose(found, wanted, rtol=tol, atol=tol, equal_nan=True):
        return ""
    largest = (found - wanted).abs().nan_to_num(float("inf")).max().item()
    return f"differs by up to {largest:.3g}"


def sbps_of(value: torch.Tensor) -> list[Sbp]:
    """The layouts that a tensor can have along one axis: splits, addends and broadcast."""
    partials = [] if value.dtype == torch.bool else [partial_sum]
    return [*map(split, range(value.ndim)), *partials, broadcast]


def _results(
    run: Callable[[list[X]], list[X]],
    sample: Sample,
    make: Callable[[torch.Tensor], X],
    gradients: Function,
    read: Callable[[X], torch.Tensor],
    second: bool = True,
) -> Results:
    """Run a sample forward, backward and twice backward, in torch or in onefold alike."""
    tensors = [make(value) for value in sample.tensors()]
    leaves: list[X] = [x for x in tensors if sample.grad and is_floating(x)]
    for leaf in leaves:
        leaf.requires_grad_()
    outputs = run(tensors)
    values = [_detached(read(output)) for output in outputs]
    reached = [(i, output) for i, output in enumerate(outputs) if output.requires_grad]
    if not leaves or not reached:
        return Results(values, [None] * len(leaves), None)
    seeds: list[X] = [make(cotangent(out.shape, out.dtype, sample.seed + i)) for i, out in reached]
    ends = [output for _, output in reached]
    for seed in seeds:
        seed.requires_grad_(second)
    step = partial(gradients, allow_unused=True)
    first = step(ends, leaves, seeds, create_graph=second)
    grads = [None if g is None else _detached(read(g)) for g in first]
    again = [g for g in first if g is not None and g.requires_grad]
    if not second or not again:
        return Results(values, grads, None)
    ends2 = [make(cotangent(g.shape, g.dtype, sample.seed + 100 + i)) for i, g in enumerate(again)]
    try:
        twice = step(again, [*leaves, *seeds], ends2)
    except RuntimeError as error:
        if gradients is not torch.autograd.grad or not _no_double(str(error)):
            raise
        return Results(values, grads, None)
    return Results(values, grads, [None if g is None else _detached(read(g)) for g in twice])


def _no_double(text: str) -> bool:
    return any(words in text for words in ("not implemented", "once_differentiable", "twice"))


def _detached(value: torch.Tensor) -> torch.Tensor:
    return value.detach().clone()


def differences(what: str, found: Values, wanted: Values, tol: float) -> str:
    """In what lists of values differ, or ""; `what` is what one of them is."""
    if len(found) != len(wanted):
        return f"{len(found)} {what}s instead of {len(wanted)}"
    texts = [
        f"{what} {index} {text}"
        for index, (one, other) in enumerate(zip(found, wanted, strict=True))
        if (text := difference(one, other, tol))
    ]
    return ", ".join(texts)
