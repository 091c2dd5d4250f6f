"""torch.distributed._functional_collectives: collectives on local tensors that return their result.

Every rank of the group calls them, and runs the backward of each, as it communicates, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ..comm import differentiable_collectives as differentiable, group_collectives as groups
from ..comm.process_groups import ProcessGroup, ReduceOp, get_global_rank
from ..engine.autograd_function import Context, Function
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldNotImplementedError, OnefoldTypeError, OnefoldValueError
from .device_mesh import DeviceMesh

__all__ = [
    "AsyncCollectiveTensor",
    "all_gather_into_tensor_coalesced",
    "all_gather_single",
    "all_gather_single_autograd",
    "all_gather_tensor",
    "all_gather_tensor_autograd",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all_single",
    "all_to_all_single_autograd",
    "broadcast",
    "reduce_scatter_single",
    "reduce_scatter_single_autograd",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd",
    "reduce_scatter_tensor_coalesced",
    "wait_tensor",
]

# Who takes part: a group, its ranks, a mesh of one axis, or a mesh and the number of an axis.
Members: TypeAlias = ProcessGroup | DeviceMesh | tuple[DeviceMesh, int] | Sequence[int]

_OPS = {
    "sum": ReduceOp.SUM,
    "product": ReduceOp.PRODUCT,
    "max": ReduceOp.MAX,
    "min": ReduceOp.MIN,
}


class _NeverThere(type):
    def __instancecheck__(cls, x: object) -> bool:
        return False


class AsyncCollectiveTensor(metaclass=_NeverThere):
    """What isinstance asks for: a result that is still on its way, of which there is none here."""


def _group(members: Members) -> ProcessGroup:
    if isinstance(members, ProcessGroup):
        return members
    if isinstance(members, DeviceMesh):
        return members.get_group()
    given: list[Any] = list(members)
    if len(given) == 2 and isinstance(given[0], DeviceMesh):
        return given[0].get_group(given[1])
    if given and all(isinstance(rank, int) for rank in given):
        return ProcessGroup(given)
    raise OnefoldTypeError(
        "group must be a ProcessGroup, a list of ranks, a DeviceMesh of one axis, or a pair of a "
        f"DeviceMesh and an axis, but got {members!r}"
    )


def _op(name: str) -> object:
    """The reduction of this name; None for a mean."""
    if name.lower() == "avg":
        return None
    if name.lower() not in _OPS:
        raise OnefoldValueError(f"reduceOp must be one of avg, {', '.join(_OPS)}, but got {name!r}")
    return _OPS[name.lower()]


class _Reduced(Function):
    """The ranks' tensors, combined by another reduction than a sum."""

    @staticmethod
    def forward(ctx: Context, op: object, group: ProcessGroup, x: Tensor) -> Tensor:
        made = x.clone()
        groups.all_reduce(made, op, group)
        return made

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[None, ...]:
        raise OnefoldNotImplementedError(
            "the gradient of a reduction over ranks: reduceOp must be 'sum' or 'avg', or the "
            "tensor be detached before"
        )


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor: a result is there when a function returns."""
    return tensor


def broadcast(self: Tensor, src: int, group: Members, tag: str = "") -> Tensor:
    """The tensor of the group's rank number `src`, on every rank."""
    found = _group(group)
    return differentiable.broadcast(self, get_global_rank(found, src), found)


def all_reduce(self: Tensor, reduceOp: str, group: Members, tag: str = "") -> Tensor:
    """The ranks' tensors, combined; sums and means have gradients. `self` stays as it is.

    Raises OnefoldValueError for another `reduceOp` than sum, avg, product, max and min,
    OnefoldTypeError for what is no group.

    >>> import onefold as flow
    >>> flow.distributed._functional_collectives.all_reduce(flow.ones(2), "sum", [0])
    tensor([1., 1.])
    """
    found, op = _group(group), _op(reduceOp)
    if op is None:
        return differentiable.all_reduce(self, group=found) / found.size()
    if op == ReduceOp.SUM:
        return differentiable.all_reduce(self, group=found)
    made: Tensor = _Reduced.apply(op, found, self)
    return made


def all_gather_single(self: Tensor, gather_dim: int, group: Members, tag: str = "") -> Tensor:
    """The ranks' tensors, one after the other along `gather_dim`."""
    return tensor_ops.cat(list(differentiable.all_gather(self, _group(group))), gather_dim)


def reduce_scatter_single(
    self: Tensor, reduceOp: str, scatter_dim: int, group: Members, tag: str = ""
) -> Tensor:
    """This rank's part, along `scatter_dim`, of the ranks' tensors combined: see `all_reduce`.

    Raises OnefoldValueError where the dim is not divided evenly.
    """
    found, op = _group(group), _op(reduceOp)
    size = found.size()
    if self.shape[scatter_dim] % size:
        raise OnefoldValueError(
            f"reduce_scatter: dim {scatter_dim} of {tuple(self.shape)} is not a multiple of the "
            f"number of ranks, {size}"
        )
    if op not in (None, ReduceOp.SUM):
        return tensor_ops.chunk(all_reduce(self, reduceOp, found), size, scatter_dim)[found.rank()]
    parts = list(tensor_ops.chunk(self, size, scatter_dim))
    total = differentiable.reduce_scatter(parts[0], parts, group=found)
    return total / size if op is None else total


def all_to_all_single(
    self: Tensor,
    output_split_sizes: Sequence[int] | None,
    input_split_sizes: Sequence[int] | None,
    group: Members,
    tag: str = "",
) -> Tensor:
    """What the ranks have for this one among their rows, which are cut evenly without sizes.

    Raises OnefoldValueError for one list of sizes without the other.
    """
    if (output_split_sizes is None) != (input_split_sizes is None):
        raise OnefoldValueError(
            "all_to_all_single: give both output_split_sizes and input_split_sizes, or neither"
        )
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    like = self.detach().new_empty((rows, *self.shape[1:]))
    return differentiable.all_to_all_single(
        like, self, output_split_sizes, input_split_sizes, _group(group)
    )


def all_reduce_coalesced(
    self: Sequence[Tensor], reduceOp: str, group: Members, tag: str = ""
) -> list[Tensor]:
    """`all_reduce` of each tensor."""
    return [all_reduce(x, reduceOp, group) for x in self]


def all_gather_into_tensor_coalesced(
    self: Sequence[Tensor], group: Members, tag: str = ""
) -> list[Tensor]:
    """`all_gather_single` of each tensor, along dim 0."""
    return [all_gather_single(x, 0, group) for x in self]


def reduce_scatter_tensor_coalesced(
    inputs: Sequence[Tensor],
    reduceOp: str,
    scatter_dim: Sequence[int],
    group: Members,
    tag: str = "",
) -> list[Tensor]:
    """`reduce_scatter_single` of each tensor, along its dim."""
    rows = zip(inputs, scatter_dim, strict=True)
    return [reduce_scatter_single(x, reduceOp, dim, group) for x, dim in rows]


# Older names, and those of the time when the others had no gradients.
all_gather_tensor = all_gather_tensor_autograd = all_gather_single_autograd = all_gather_single
reduce_scatter_tensor = reduce_scatter_tensor_autograd = reduce_scatter_single
reduce_scatter_single_autograd = reduce_scatter_single
all_to_all_single_autograd = all_to_all_single
