"""Lists of local shards of tensors that belong together, for kernels that take many tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..engine.tensor import Tensor
from ..kernels.formatted import in_format_of
from ..kernels.memory_format_ref import is_alike

_is_contiguous = torch.Tensor.is_contiguous


def unique_shards(*columns: Sequence[Tensor]) -> list[list[list[torch.Tensor]]]:
    """For tensors that belong together, the lists of their distinct local shards, in step.

    One set of lists for each device and dtype, as the kernels need. The second column, the
    gradients, is brought into the memory format of the first; the others are written to, and
    already are in it. The first column decides what is distinct: replicas of a virtual world are
    updated once.
    """
    firsts = [tensor.shards[0] for tensor in columns[0] if len(tensor.shards) == 1]
    if len(firsts) == len(columns[0]) and len({(p.dtype, p.get_device()) for p in firsts}) == 1:
        grads = [tensor.shards[0] for tensor in columns[1]]
        if all(map(_is_contiguous, firsts)):
            grads = [grad.contiguous() for grad in grads]
        else:
            grads = [_like(*pair) for pair in zip(grads, firsts, strict=True)]
        return [[firsts, grads, *[[x.shards[0] for x in column] for column in columns[2:]]]]
    alike: dict[object, list[list[torch.Tensor]]] = {}
    for row in zip(*columns, strict=True):
        seen: set[int] = set()
        for index, part in enumerate(row[0].shards):
            if id(part) not in seen:
                seen.add(id(part))
                key = (part.device, part.dtype)
                lists = alike.setdefault(key, [[] for _ in columns])
                for place, (found, tensor) in enumerate(zip(lists, row, strict=True)):
                    shard = tensor.shards[index]
                    found.append(_like(shard, part) if place == 1 else shard)
    return list(alike.values())


def _like(grad: torch.Tensor, param: torch.Tensor) -> torch.Tensor:
    if grad.ndim != param.ndim:  # a number for each parameter
        return grad.contiguous()
    return grad if is_alike(grad, param) else in_format_of(grad, param)
