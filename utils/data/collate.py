"""Collation: samples become batches of local tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.utils._pytree import tree_map_only
from torch.utils.data import default_convert as torch_convert
from torch.utils.data._utils.collate import collate, default_collate_fn_map

from ...engine.names import names
from ...engine.tensor import Tensor
from ...engine.values import from_torch
from ...errors import MixedTensorsError, OnefoldTypeError

Collate = Callable[..., Any]


def default_collate(batch: Sequence[Any]) -> Any:
    """The samples of a batch, stacked along a new first dim, as torch's `default_collate` does it.

    Tensors of onefold and torch, numpy arrays and numbers become local tensors; dicts, lists and
    tuples of them are collated part by part; text stays a list. Raises MixedTensorsError for
    global tensors, OnefoldTypeError or torch's errors for what cannot be stacked.

    >>> default_collate([(1, "a"), (2, "b")])
    [tensor([1, 2]), ('a', 'b')]
    """
    return collate(batch, collate_fn_map=_COLLATE)


def default_convert(data: Any) -> Any:
    """`data` with every torch tensor and numpy array in it as a local tensor; numbers stay."""
    return tree_map_only(torch.Tensor, from_torch, torch_convert(data))


def _wrapped(value: Any) -> Any:
    return from_torch(value) if isinstance(value, torch.Tensor) else value


def _wrapping(function: Collate) -> Collate:
    def call(batch: Sequence[Any], *, collate_fn_map: dict[Any, Collate]) -> Any:
        return _wrapped(function(batch, collate_fn_map=collate_fn_map))

    return call


def _stack(batch: Sequence[Any], *, collate_fn_map: dict[Any, Collate]) -> Any:
    ours = [sample for sample in batch if isinstance(sample, Tensor)]
    for sample in ours:
        if sample.is_global:
            raise MixedTensorsError(
                f"a sample is a global tensor, {sample.meta!r}, but samples are local: a process "
                "loads them on its own. Make the batch global with to_global(placement, sbp), or "
                "let utils.data.GlobalLoader do it"
            )
    if any(sample.requires_grad for sample in ours):
        return names.stack([_wrapped(sample) for sample in batch])
    theirs = [x.to_torch() if isinstance(x, Tensor) else x for x in batch]
    return from_torch(_stack_theirs(theirs, collate_fn_map=collate_fn_map))


_stack_theirs = default_collate_fn_map[torch.Tensor]
_COLLATE: dict[Any, Collate] = {
    **{kind: _wrapping(function) for kind, function in default_collate_fn_map.items()},
    Tensor: _stack,
    torch.Tensor: _stack,
}


def _rebuilt(value: torch.Tensor, requires_grad: bool) -> Tensor:
    return from_torch(value, requires_grad=requires_grad)


def _reduce(x: Tensor) -> tuple[Any, ...]:
    """How a worker process sends a local tensor: through shared memory, as torch sends its own."""
    if x.is_global:
        raise OnefoldTypeError(
            "a worker process of a loader made a global tensor, but it has none of the shards of "
            "others; make samples local, and the batch global with GlobalLoader or to_global"
        )
    return _rebuilt, (x.to_torch(), x.requires_grad)


ForkingPickler.register(Tensor, _reduce)
