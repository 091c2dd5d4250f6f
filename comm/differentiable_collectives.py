"""torch.distributed.nn (`flow.distributed.nn`): collectives on local tensors, with gradients.

Every rank that takes part must run the backward of each of them, as it communicates, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.distributed import ReduceOp

from ..engine.autograd_function import Context, Function
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldNotImplementedError
from . import group_collectives as groups
from .group_collectives import Group, members
from .process_groups import get_rank

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
]

__path__: list[str] = []  # import_paths.py leads to what is below it


def _empties(like: Tensor, group: Group) -> list[Tensor]:
    return [tensor_ops.empty_like(like) for _ in members(group)]


def _sum(gradient: Tensor, group: Group) -> Tensor:
    total = gradient.clone()
    groups.all_reduce(total, group=group)
    return total


def _sum_on(rank: int, gradient: Tensor, group: Group) -> Tensor:
    """The sum of the ranks' gradients on one of them, and zeros on the others."""
    total = gradient.clone()
    groups.reduce(total, rank, group=group)
    return total if get_rank() == rank else tensor_ops.zeros_like(total)


def _mine(gradients: Sequence[Tensor], group: Group) -> Tensor:
    """The sum of the gradients that the ranks have for this rank's tensor."""
    total = tensor_ops.empty_like(gradients[0])
    groups.reduce_scatter(total, [each.contiguous() for each in gradients], group=group)
    return total


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Context, src: int, group: Group, tensor: Tensor) -> Tensor:
        vars(ctx).update(src=src, group=group)
        made = tensor.clone()
        groups.broadcast(made, src, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, _sum_on(ctx.src, dy, ctx.group)


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Context, dst: int, op: object, group: Group, tensor: Tensor) -> Tensor:
        vars(ctx).update(dst=dst, group=group)
        made = tensor.clone()
        groups.reduce(made, dst, op, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, broadcast(dy, ctx.dst, ctx.group)


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Context, op: object, group: Group, tensor: Tensor) -> Tensor:
        vars(ctx).update(group=group)
        made = tensor.clone()
        groups.all_reduce(made, op, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, _sum(dy, ctx.group)


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Context, group: Group, tensor: Tensor) -> tuple[Tensor, ...]:
        vars(ctx).update(group=group)
        made = _empties(tensor, group)
        groups.all_gather(made, tensor.contiguous(), group=group)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *dys: Tensor) -> tuple[Tensor | None, ...]:
        return None, _mine(dys, ctx.group)


class _Gather(Function):
    @staticmethod
    def forward(ctx: Context, dst: int, group: Group, tensor: Tensor) -> tuple[Tensor, ...]:
        vars(ctx).update(dst=dst, group=group)
        made = [tensor_ops.zeros_like(tensor) for _ in members(group)]
        there = get_rank() == dst
        groups.gather(tensor.contiguous(), made if there else None, dst, group=group)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *dys: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, scatter(dys, ctx.dst, ctx.group)


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Context, src: int, group: Group, *tensors: Tensor) -> Tensor:
        vars(ctx).update(src=src, group=group)
        made = tensor_ops.empty_like(tensors[0])
        there = get_rank() == src
        groups.scatter(made, list(tensors) if there else None, src, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *gather(dy, ctx.src, ctx.group)


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Context, op: object, group: Group, *tensors: Tensor) -> Tensor:
        vars(ctx).update(group=group)
        made = tensor_ops.empty_like(tensors[0])
        groups.reduce_scatter(made, [each.contiguous() for each in tensors], op, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *all_gather(dy, ctx.group)


class _AllToAll(Function):
    @staticmethod
    def forward(
        ctx: Context, group: Group, outputs: Sequence[Tensor], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        vars(ctx).update(group=group, inputs=[tensor_ops.empty_like(each) for each in tensors])
        made = [tensor_ops.empty_like(each) for each in outputs]
        groups.all_to_all(made, [each.contiguous() for each in tensors], group=group)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *dys: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *_AllToAll.apply(ctx.group, ctx.inputs, *dys)


class _AllToAllSingle(Function):
    @staticmethod
    def forward(
        ctx: Context, group: Group, output: Tensor, received: Any, sent: Any, tensor: Tensor
    ) -> Tensor:
        like = tensor_ops.empty_like(tensor)
        vars(ctx).update(group=group, received=received, sent=sent, like=like)
        made = tensor_ops.empty_like(output)
        groups.all_to_all_single(made, tensor.contiguous(), received, sent, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        found = _AllToAllSingle.apply(ctx.group, ctx.like, ctx.sent, ctx.received, dy)
        return None, None, None, None, found


def _only_sums(op: object, what: str) -> None:
    if op != ReduceOp.SUM:
        raise OnefoldNotImplementedError(
            f"distributed.nn.{what}: op must be ReduceOp.SUM, which has a gradient, but got {op}"
        )


def broadcast(tensor: Tensor, src: int, group: Group = None) -> Tensor:
    """Rank `src`'s tensor on every rank; its gradient is the sum of those of the ranks."""
    made: Tensor = _Broadcast.apply(src, group, tensor)
    return made


def reduce(tensor: Tensor, dst: int, op: object = ReduceOp.SUM, group: Group = None) -> Tensor:
    """The sum of the ranks' tensors on rank `dst`."""
    _only_sums(op, "reduce")
    made: Tensor = _Reduce.apply(dst, op, group, tensor)
    return made


def all_reduce(tensor: Tensor, op: object = ReduceOp.SUM, group: Group = None) -> Tensor:
    """The sum of the ranks' tensors; a gradient is the sum of those of the ranks."""
    _only_sums(op, "all_reduce")
    made: Tensor = _AllReduce.apply(op, group, tensor)
    return made


def all_gather(tensor: Tensor, group: Group = None) -> tuple[Tensor, ...]:
    """The ranks' tensors; the gradient of each is the sum of those that the ranks have for it."""
    made: tuple[Tensor, ...] = _AllGather.apply(group, tensor)
    return made


def gather(tensor: Tensor, dst: int = 0, group: Group = None) -> tuple[Tensor, ...]:
    """The ranks' tensors on rank `dst`; zeros on the others."""
    made: tuple[Tensor, ...] = _Gather.apply(dst, group, tensor)
    return made


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Group = None) -> Tensor:
    """The tensor that rank `src` has for this one; tensors of other ranks give the shape."""
    made: Tensor = _Scatter.apply(src, group, *tensors)
    return made


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: object = ReduceOp.SUM, group: Group = None
) -> Tensor:
    """The sum of the ranks' tensors for this one; `output` is not written."""
    _only_sums(op, "reduce_scatter")
    made: Tensor = _ReduceScatter.apply(op, group, *input_list)
    return made


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Group = None
) -> tuple[Tensor, ...]:
    """What the ranks have for this one; the outputs give shapes and are not written."""
    made: tuple[Tensor, ...] = _AllToAll.apply(group, output_tensor_list, *input_tensor_list)
    return made


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
) -> Tensor:
    """`all_to_all` of the rows of one tensor; `output` gives the shape and is not written."""
    made: Tensor = _AllToAllSingle.apply(
        group, output, output_split_sizes, input_split_sizes, input
    )
    return made
