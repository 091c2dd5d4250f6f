"""Collectives on local tensors under torch.distributed's names and arguments; see `flow.comm`.

Ranks outside of `group` return at once, as in torch. With `async_op` the result is there as soon as
the call returns: the work that is given has nothing left to wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from torch.distributed import ReduceOp
from torch.futures import Future

from ..distributed.world import world
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldTypeError, OnefoldValueError
from . import local_collectives as collectives
from .process_groups import GroupMember, ProcessGroup, get_global_rank

Group: TypeAlias = ProcessGroup | None

_OPS = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "mean",
    ReduceOp.PRODUCT: "product",
    ReduceOp.MAX: "max",
    ReduceOp.MIN: "min",
    ReduceOp.BAND: "and",
    ReduceOp.BOR: "or",
    ReduceOp.BXOR: "xor",
}


class Work:
    """A collective that has ended, and the tensors that it wrote."""

    def __init__(self, written: Sequence[Tensor] = ()) -> None:
        self._written = list(written)

    def wait(self, timeout: object = None) -> bool:
        """True."""
        return True

    def is_completed(self) -> bool:
        """True."""
        return True

    def is_success(self) -> bool:
        """True."""
        return True

    def exception(self) -> None:
        """None: a collective that fails raises its error itself."""

    def synchronize(self) -> None:
        """Nothing is left to wait for."""

    def result(self) -> list[Tensor]:
        """The tensors that were written."""
        return list(self._written)

    def get_future(self) -> Future[list[Tensor]]:
        """A future of torch that is done, for `torch.futures`; its value is `result()`."""
        future: Future[list[Tensor]] = Future()
        future.set_result(self.result())
        return future


def _op(op: object) -> str:
    for known, name in _OPS.items():
        if op == known:
            return name
    raise OnefoldTypeError(f"op must be one of ReduceOp's, SUM to BXOR, but got {op!r}")


def members(group: Group) -> tuple[int, ...]:
    """The ranks of a group, which is refused if it is none of ours."""
    if group is not None and not isinstance(group, ProcessGroup):
        raise OnefoldTypeError(
            f"group must be a ProcessGroup, as new_group gives, or None, but got {group!r}"
        )
    return (group or GroupMember.WORLD).ranks


def rank_of(given: int | None, in_group: int | None, group: Group, name: str) -> int:
    """A rank of the job that is named as such, or by its number in the group."""
    if given is None and in_group is None:
        raise OnefoldValueError(
            f"no rank was named: give {name}, or group_{name}, its number in the group; a message "
            "of any rank cannot be asked for"
        )
    if given is not None and in_group is not None:
        raise OnefoldValueError(f"give either {name} or group_{name}, and not both")
    if in_group is None:
        assert given is not None
        return given
    members(group)  # which refuses what is no group
    return get_global_rank(group or GroupMember.WORLD, in_group)


def root_of(given: int | None, in_group: int | None, group: Group, name: str) -> int:
    """The same, or the group's first rank if neither is given."""
    if given is None and in_group is None:
        return members(group)[0]
    return rank_of(given, in_group, group, name)


def _run(
    group: Group,
    async_op: bool,
    call: Callable[[tuple[int, ...]], None],
    written: Sequence[Tensor] = (),
) -> Work | None:
    ranks = members(group)
    if (world().rank or 0) not in ranks:
        return None
    call(ranks)
    return Work(written) if async_op else None


def all_reduce(
    tensor: Tensor, op: object = ReduceOp.SUM, group: Group = None, async_op: bool = False
) -> Work | None:
    """Write the combination of the ranks' tensors into each of them."""
    return _run(
        group, async_op, lambda ranks: collectives.all_reduce(tensor, _op(op), ranks), [tensor]
    )


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: object = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Write the combination of the ranks' tensors into that of rank `dst`."""

    def call(ranks: tuple[int, ...]) -> None:
        collectives.reduce(tensor, rank_of(dst, group_dst, group, "dst"), _op(op), ranks)

    return _run(group, async_op, call, [tensor])


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Write rank `src`'s tensor into those of the others."""

    def call(ranks: tuple[int, ...]) -> None:
        collectives.broadcast(tensor, rank_of(src, group_src, group, "src"), ranks)

    return _run(group, async_op, call, [tensor])


def all_gather(
    tensor_list: Sequence[Tensor], tensor: Tensor, group: Group = None, async_op: bool = False
) -> Work | None:
    """Write the ranks' tensors into `tensor_list`, in the order of the ranks."""
    return _run(
        group,
        async_op,
        lambda ranks: collectives.all_gather(tensor_list, tensor, ranks),
        tensor_list,
    )


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Group = None, async_op: bool = False
) -> Work | None:
    """Write the ranks' tensors one after the other into `output_tensor`."""
    return _run(
        group,
        async_op,
        lambda ranks: collectives.all_gather_into_tensor(output_tensor, input_tensor, ranks),
        [output_tensor],
    )


def gather(
    tensor: Tensor,
    gather_list: Sequence[Tensor] | None = None,
    dst: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Write the ranks' tensors into rank `dst`'s `gather_list`; by default the first rank's."""

    def call(ranks: tuple[int, ...]) -> None:
        collectives.gather(tensor, gather_list, root_of(dst, group_dst, group, "dst"), ranks)

    return _run(group, async_op, call, gather_list or ())


def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int | None = None,
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Write the i-th tensor of rank `src`'s list into the i-th rank's `tensor`."""

    def call(ranks: tuple[int, ...]) -> None:
        collectives.scatter(tensor, scatter_list, root_of(src, group_src, group, "src"), ranks)

    return _run(group, async_op, call, [tensor])


def reduce_scatter(
    output: Tensor,
    input_list: Sequence[Tensor],
    op: object = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """Write the combination of the ranks' i-th inputs into the i-th rank's `output`."""
    return _run(
        group,
        async_op,
        lambda ranks: collectives.reduce_scatter(output, input_list, _op(op), ranks),
        [output],
    )


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: object = ReduceOp.SUM,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """Combine the ranks' inputs; the i-th of equal parts is written into the i-th rank's output."""
    return _run(
        group,
        async_op,
        lambda ranks: collectives.reduce_scatter_tensor(output, input, _op(op), ranks),
        [output],
    )


all_gather_single, reduce_scatter_single = all_gather_into_tensor, reduce_scatter_tensor  # newer


def all_to_all(
    output_tensor_list: Sequence[Tensor],
    input_tensor_list: Sequence[Tensor],
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """Send the i-th input to the i-th rank; what it sent here is written into the i-th output."""
    return _run(
        group,
        async_op,
        lambda ranks: collectives.all_to_all(output_tensor_list, input_tensor_list, ranks),
        output_tensor_list,
    )


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Group = None,
    async_op: bool = False,
) -> Work | None:
    """`all_to_all` of the rows of one tensor, which are cut evenly unless sizes are given."""

    def call(ranks: tuple[int, ...]) -> None:
        outs, ins = (
            list(tensor_ops.split(x.detach(), _sizes(x, sizes, len(ranks))))  # views of rows
            for x, sizes in ((output, output_split_sizes), (input, input_split_sizes))
        )
        collectives.all_to_all(outs, ins, ranks)

    return _run(group, async_op, call, [output])


def _sizes(x: Tensor, sizes: Sequence[int] | None, count: int) -> list[int]:
    if sizes:
        return list(sizes)
    if x.shape[0] % count:
        raise OnefoldValueError(
            f"all_to_all_single: {x.shape[0]} rows are not divided evenly by {count} ranks; give "
            "split sizes"
        )
    return [x.shape[0] // count] * count


def barrier(group: Group = None, async_op: bool = False, device_ids: object = None) -> Work | None:
    """Return when every rank of the group has called this."""
    return _run(group, async_op, collectives.barrier)
