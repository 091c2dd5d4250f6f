"""Samples of distributions whose parameters may be tensors: normal, bernoulli and multinomial."""

from __future__ import annotations

from math import inf
from typing import Unpack

import torch

from ...errors import OnefoldRuntimeError, OnefoldTypeError
from ...kernels import random_ref as random_kernels
from .. import interpreter
from ..argument_types import Dims, TypedLayout
from ..generator import Generator
from ..grad_mode import no_grad
from ..inplace import formatted_as
from ..names import register_function
from ..out_tensors import give_to, made_for
from ..sbp import broadcast, split
from ..tensor import Tensor, tensor_ops
from ..values import item
from .arithmetic import add, div, mul
from .cast import cast, widened
from .compare import ge, gt, logical_and, lt
from .creation import read_size
from .extremum import all
from .like import constant_like, layout_like
from .random_creation import rand, random_like, random_source
from .random_inplace import check_within, draw_bernoulli, extremes_on_host
from .reduce import sum, without_partials
from .scan import cumsum
from .slicing import narrow
from .sorting import topk


@register_function
@no_grad
def normal(
    mean: Tensor | float,
    std: Tensor | float = 1.0,
    size: Dims | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    **layout: Unpack[TypedLayout],
) -> Tensor:
    """Normal numbers of this mean and standard deviation.

    Of two numbers `size` and the layout are those of the result. Where one is a tensor, or both
    are, each element has a mean and deviation of its own, in the dtype and layout of `mean` (or of
    `std`). Raises OnefoldRuntimeError for a negative deviation.

    >>> import onefold as flow
    >>> flow.normal(flow.tensor([1.0, 2.0]), 0.0)
    tensor([1., 2.])
    """
    tensors = [x for x in (mean, std) if isinstance(x, Tensor)]
    if not tensors:
        if size is None:
            raise OnefoldTypeError("normal of two numbers needs size=, the shape of the result")
        if out is not None:
            placed = made_for(out, layout)
            return give_to(out, normal(mean, std, size, generator=generator, **placed))
        shape, fill = read_size((size,), "normal"), random_kernels.normal
        return random_source("normal", shape, fill, generator, layout, mean=mean, std=std)
    if size is not None or any(value is not None for value in layout.values()):
        raise OnefoldTypeError(
            "normal: the shape and layout are those of the tensors, so give no size= or layout"
        )
    if out is not None:
        return give_to(out, normal(mean, std, generator=generator))
    if isinstance(std, Tensor):
        check_within(std, 0, inf, "normal expects all elements of std >= 0.0")
    elif std < 0:
        raise OnefoldRuntimeError(f"normal expects std >= 0.0, but found std {std}")
    like = tensors[0] if len(tensors) == 1 else add(*[constant_like(x, 0) for x in tensors])
    fill, dtype = random_kernels.normal, tensors[0].dtype
    drawn = random_like("normal", like, fill, generator, layout_like, dtype, mean=0.0, std=1.0)
    return cast(add(mul(drawn, std), mean), tensors[0].dtype)


@register_function
@no_grad
def bernoulli(
    input: Tensor,
    p: float | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """1 with the probability that each element is, else 0, in the dtype and layout of `input`.

    With `p` that is the probability of all. Raises OnefoldTypeError for a dtype that is not
    floating, OnefoldRuntimeError for a probability outside of [0, 1].
    """
    if out is not None:
        return give_to(out, bernoulli(input, p, generator=generator))
    probability = input if p is None else p
    if p is None and not input.dtype.is_floating_point:
        raise OnefoldTypeError(f"bernoulli needs floating probabilities, but got {input.dtype}")
    drawn = cast(draw_bernoulli(input, probability, generator), input.dtype)
    return formatted_as(drawn, input)


@register_function
@no_grad
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Indices drawn from the distribution in each row of (N, K), or in (K): (N, S), or (S).

    The rows are weights, which need not add up to 1. Without `replacement` no index is drawn twice:
    those are drawn whose exponential numbers of rate `input` are the smallest. Reads values, except
    in a graph. Raises OnefoldRuntimeError for weights that are no distribution, for too many
    samples, and for another number of dims; OnefoldTypeError for a dtype that is not floating.

    >>> import onefold as flow
    >>> flow.multinomial(flow.tensor([0.0, 3.0, 0.0]), 2, replacement=True)
    tensor([1, 1])
    """
    if out is not None:
        return give_to(out, multinomial(input, num_samples, replacement, generator=generator))
    if not input.dtype.is_floating_point:
        raise OnefoldTypeError(
            f"multinomial only supports floating-point dtypes for input, got: {input.dtype}"
        )
    if input.ndim not in (1, 2):
        raise OnefoldRuntimeError(f"multinomial: prob_dist must be 1 or 2 dim, got {input.ndim}")
    if num_samples <= 0:
        raise OnefoldRuntimeError(f"cannot sample n_sample <= 0 samples, got {num_samples}")
    if not replacement and num_samples > input.shape[-1]:
        raise OnefoldRuntimeError(
            f"cannot sample n_sample > prob_dist.size(-1) samples without replacement: "
            f"{num_samples} > {input.shape[-1]}"
        )
    weights = without_partials(widened(input))
    if not interpreter.capturing():
        _check_distribution(weights)
    if not replacement:
        fill = random_kernels.exponential
        order = random_like("multinomial", weights, fill, generator, layout_like, scale=1.0)
        return topk(div(weights, order), num_samples).indices
    # In float64 no number of 24 bits below 1 times the sum is rounded up to the sum.
    sums = cumsum(weights, -1, dtype=torch.float64)
    rows = tuple(input.shape[:-1])
    layout = layout_like(input, {"dtype": torch.float32})
    if input.is_global:
        layout["sbp"] = [sbp if rows and sbp == split(0) else broadcast for sbp in input.sbp]
    u = cast(rand(*rows, num_samples, generator=generator, **layout), torch.float64)
    wanted = mul(u, narrow(sums, -1, input.shape[-1] - 1, 1))
    return tensor_ops.searchsorted(sums, wanted, right=True)


def _check_distribution(weights: Tensor) -> None:
    """Raise OnefoldRuntimeError unless each row has weights that are finite, and one above 0."""
    extremes = extremes_on_host(weights)
    if extremes is not None:
        right = extremes[0] >= 0 and extremes[1] < inf
        if right and weights.shards[0].sum(-1).min().item() > 0:
            return
    else:
        valid = all(logical_and(ge(weights, 0), lt(weights, inf)))
        if item(logical_and(valid, all(gt(sum(weights, -1), 0)))):  # one wait for the device
            return
        right = item(valid)
    if not right:
        raise OnefoldRuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    raise OnefoldRuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
