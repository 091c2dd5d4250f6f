"""Torch's own updates, norms and checks for lists of local tensors, in one call.

An update is a list of functions: each computes what it needs, and gives the functions of torch that
change memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from math import prod

import torch

from .memory_format_ref import dense

Tensors = list[torch.Tensor]
Write = Callable[[], list[Callable[[], None]]]

FAR = 1e30  # a step so late that every power of a beta is 0, and no bias is left to correct

ROUND = 2**18  # elements that are scaled before they are used


def by_moments(
    update: Callable[..., None],
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors | None = None,
    *,
    step: int | torch.Tensor | None,
    lr: float | torch.Tensor,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    maximize: bool,
    scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> list[Write]:
    """Adam or AdamW by torch's function for it, on tensors of one device and dtype.

    `step` counts from 1; None leaves out the bias correction. With `max_exp_avg_sqs` it is
    AMSGrad. `step` and `lr` may be 0-d tensors on the device, as `scale` is, by which gradients are
    multiplied first; so a captured graph can be run with other numbers. Where `found_inf`, float32
    on the device, is 1 and not 0, nothing changes.
    """
    device = params[0].device
    if isinstance(step, torch.Tensor):
        count = step.to(device, torch.float32)
    else:
        count = torch.scalar_tensor(step or FAR, dtype=torch.float32, device=device)
    options = {
        "lr": _rate(lr, params[0]),
        "beta1": betas[0],
        "beta2": betas[1],
        "weight_decay": weight_decay,
        "eps": eps,
        "amsgrad": max_exp_avg_sqs is not None,
        "maximize": maximize,
        "found_inf": found_inf,
    }
    columns = [params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs or []]
    return [
        partial(_write, update, lists, scale, options, count) for lists in _rounds(columns, scale)
    ]


def sgd(
    params: Tensors,
    grads: Tensors,
    momentum_buffers: Tensors | None = None,
    *,
    lr: float | torch.Tensor,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    first_step: bool,
    scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> list[Write]:
    """SGD by torch's function; on the first step the momentum buffer is the gradient.

    `lr`, `scale` and `found_inf` as in `by_moments`.
    """
    options = {
        "weight_decay": weight_decay,
        "momentum": momentum,
        "lr": _rate(lr, params[0]),
        "dampening": dampening,
        "nesterov": nesterov,
        "maximize": maximize,
        "is_first_step": first_step,
        "found_inf": found_inf,
    }
    columns = [params, grads, momentum_buffers or []]
    # torch's function is for devices that have data; elsewhere there is nothing to update.
    fused = _nothing if params[0].device.type == "meta" else torch._fused_sgd_
    rounds = _rounds(columns, scale)
    if params[0].dtype.itemsize < 4 and params[0].device.type == "cpu":
        # Up to torch 2.13 its function for half precision does not update parameters, and reads
        # uninitialized memory for momentum buffers (pytorch/pytorch#191763).
        fused, rounds = partial(_in_float32, fused), _parts(columns)
    return [partial(_write, fused, lists, scale, options) for lists in rounds]


def _in_float32(update: Callable[..., None], *lists: Tensors, **options: object) -> None:
    """An update that is computed in float32, and rounded where it is written."""
    wide = [[x.float() for x in column] for column in lists]
    update(*wide, **options)
    for column, updated in ((lists[0], wide[0]), *zip(lists[2:], wide[2:], strict=True)):
        for x, value in zip(column, updated, strict=True):
            x.copy_(value)


def _nothing(*lists: Tensors, **options: object) -> None:
    """The update of tensors without data."""


def _write(
    update: Callable[..., None],
    lists: list[Tensors],
    scale: torch.Tensor | None,
    options: Mapping[str, object],
    count: torch.Tensor | None = None,
) -> list[Callable[[], None]]:
    """The update of lists whose second one, the gradients, is scaled first.

    `count` is the number of the step, for functions that take a list of them.
    """
    if scale is not None:
        lists = [lists[0], scaled(lists[1], scale), *lists[2:]]
    if count is not None:
        lists = [*lists, [count] * len(lists[0])]
    return [partial(update, *lists, **options)]


def _rounds(columns: list[Tensors], scale: torch.Tensor | None) -> Iterable[list[Tensors]]:
    """The lists, or on the CPU a few of their elements at a time, if gradients are scaled.

    There what a round scales is still in the cache when it is used, and its memory is used again.
    """
    return (columns,) if scale is None else _parts(columns)


def _parts(columns: list[Tensors]) -> Iterator[list[Tensors]]:
    sizes = [0, *accumulate(param.numel() for param in columns[0])]
    begin = 0
    for end in range(1, len(sizes)):
        full = columns[0][0].device.type == "cpu" and sizes[end] - sizes[begin] >= ROUND
        if full or end == len(sizes) - 1:
            yield [column[begin:end] for column in columns]
            begin = end


def _rate(lr: float | torch.Tensor, like: torch.Tensor) -> float | torch.Tensor:
    """On cuda torch reads a learning rate that is a tensor as float32."""
    return lr.float() if isinstance(lr, torch.Tensor) and like.is_cuda else lr


def scaled(grads: Tensors, scale: torch.Tensor) -> Tensors:
    """Tensors of one dtype times a 0-d tensor on their device, not rounded to their dtype."""
    if grads[0].dtype.itemsize < 4:
        return [(grad.to(scale.dtype) * scale).to(grad.dtype) for grad in grads]
    return list(torch._foreach_mul(grads, scale))


def powers(
    parts: Sequence[torch.Tensor], p: float, scale: torch.Tensor | None = None
) -> torch.Tensor:
    """The p-norm of each part to the power p (the greatest magnitude for p = inf), as float64.

    Of each part times `scale`, a 0-d tensor on the device, if that is given. An empty part gives
    0. Sums run in float32 for half precision, else in the part's dtype.
    """
    found = torch.zeros(len(parts), dtype=torch.float64, device=parts[0].device)
    for index, part in enumerate(parts):
        if part.numel():
            wide = torch.promote_types(part.dtype, torch.float32)
            if scale is not None:
                part = part.to(wide) * scale
            norm = torch.linalg.vector_norm(part, p, dtype=wide).double()
            found[index] = norm if p == float("inf") else norm**p
    return found


def not_finite(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """For each part 1 if an element is infinite or NaN, else 0, as float64."""
    ends = []
    for part in parts:
        real = torch.view_as_real(part) if part.is_complex() else part
        ends.append(torch.stack(real.aminmax() if real.numel() else [real.new_zeros(())] * 2))
    return torch.stack(ends).isfinite().all(1).logical_not().double()


def flatten(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The parts one after the other in one 1-d tensor."""
    return torch.cat([part.reshape(-1) for part in parts])


def cast_each(parts: Sequence[torch.Tensor], dtype: torch.dtype) -> Tensors:
    """Each part in another dtype and the same memory format."""
    return [dense(part.to(dtype)) for part in parts]


def unflatten(flat: torch.Tensor, shapes: Sequence[Sequence[int]]) -> Tensors:
    """Views of `flat` in these shapes, one after the other."""
    parts = flat.split([prod(shape) for shape in shapes])
    return [part.view(tuple(shape)) for part, shape in zip(parts, shapes, strict=True)]
