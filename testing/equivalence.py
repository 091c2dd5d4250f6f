"""assert_sbp_equivalent: a function gives the same result on one device and under every layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import numpy as np
import torch
from numpy.typing import ArrayLike

from ..engine.autograd import grad
from ..engine.names import Function
from ..engine.placement import Placement
from ..engine.sbp import NdSbp, short
from ..engine.tensor import Tensor
from .manual_layouts import like, make_global, make_local
from .sample_checks import differences, random_gradients, sbps_of, value_of
from .samples import flat


def assert_sbp_equivalent(
    fn: Function,
    *inputs: Tensor | torch.Tensor | ArrayLike,
    placements: Sequence[Placement] | None = None,
    rtol: float = 1e-10,
    max_layouts: int = 40,
    seed: int = 0,
) -> None:
    """Check that `fn` means the same on one device and on global tensors under many layouts.

    `fn` is called with `inputs` as local tensors and then, for each placement, as global tensors
    under every combination of split, broadcast and partial_sum; where there are more than
    `max_layouts` of them, that many are drawn with `seed`. Outputs, and the gradients of floating
    inputs for a random cotangent, must agree within `rtol` (relative and absolute).

    inputs: torch tensors, numpy arrays or local onefold tensors; floats best in float64.
    placements: by default two ranks, three ranks and a [2, 2] mesh; in a launched world pass
        placements of its ranks, and call this on every process.

    Raises AssertionError naming the layouts of the inputs, the output or gradient and the largest
    difference; ValueError when `fn` returns no tensor.

    Example:
        >>> assert_sbp_equivalent(lambda a, b: a @ b, np.ones((4, 6)), np.ones((6, 5)))
    """
    values = [_value(x) for x in inputs]
    if placements is None:
        placements = [Placement("cpu", ranks) for ranks in ([0, 1], [0, 1, 2], [[0, 1], [2, 3]])]
    wanted, wanted_grads = results(fn, [make_local(value) for value in values], seed)
    if not wanted:
        raise ValueError(f"assert_sbp_equivalent: {fn!r} returned no tensor")
    for placement in placements:
        for nd_sbps in layouts(values, placement, max_layouts, seed):
            tensors = [
                make_global(value, placement, nd_sbp, seed + index)
                for index, (value, nd_sbp) in enumerate(zip(values, nd_sbps, strict=True))
            ]
            where = f"inputs laid out as {', '.join(map(short, nd_sbps))} on {placement!r}"
            found, found_grads = results(fn, tensors, seed)
            text = differences("output", found, wanted, rtol) or differences(
                "gradient of input", found_grads, wanted_grads, rtol
            )
            if text:
                raise AssertionError(f"{text}, with {where}")


def results(
    fn: Function, tensors: Sequence[Tensor], seed: int
) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """The values of what `fn` returns, and the gradients of the floating inputs.

    The cotangents are random but depend on the seed and the outputs' shapes only. An input of
    which no output depends has gradient None.
    """
    leaves = [tensor for tensor in tensors if tensor.meta.is_floating]
    for leaf in leaves:
        leaf.requires_grad_()
    outputs = flat(fn(*tensors), Tensor)
    ends = {index: output for index, output in enumerate(outputs) if output.requires_grad}
    gradients = random_gradients(ends, leaves, like, grad, seed)
    return (
        [value_of(output) for output in outputs],
        [None if gradient is None else value_of(gradient) for gradient in gradients],
    )


def layouts(
    values: Sequence[torch.Tensor], placement: Placement, limit: int, seed: int
) -> Iterator[tuple[NdSbp, ...]]:
    """Combinations of the tensors' layouts on a placement: all, or `limit` drawn ones."""
    choices = [list(product(sbps_of(value), repeat=placement.ndim)) for value in values]
    if prod(map(len, choices)) <= limit:
        yield from product(*choices)
        return
    random = np.random.default_rng(seed)
    for _ in range(limit):
        yield tuple(choice[int(random.integers(len(choice)))] for choice in choices)


def _value(x: Tensor | torch.Tensor | ArrayLike) -> torch.Tensor:
    if isinstance(x, Tensor):
        if x.is_global:
            raise ValueError("assert_sbp_equivalent lays its inputs out itself; pass local tensors")
        return x.shards[0]
    return x.detach() if isinstance(x, torch.Tensor) else torch.from_numpy(np.asarray(x))
