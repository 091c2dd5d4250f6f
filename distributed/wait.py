"""Starts torch.distributed works and waits for them, with a timeout that names the op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from torch import Tensor
from torch.distributed import Work

from .connection import Connection, Group
from .pending import Pending


class OpSlot:
    """The op on whose behalf collectives run. Callers set `.name` before they communicate.

    With ONEFOLD_CHECK=1, `.origin` is that of what it communicates, if it is known. `.captured` is
    set while a CUDA graph captures it; see `captured_collectives`.
    """

    __slots__ = ("captured", "name", "origin")

    def __init__(self) -> None:
        self.name = ""
        self.origin = 0
        self.captured = False

    @contextmanager
    def named(self, name: str, origin: int = 0) -> Iterator[None]:
        """Let the block communicate on behalf of an op; who does so next may have other peers."""
        self.name, self.origin = name, origin
        try:
            yield
        finally:
            self.name, self.origin = "", 0


current_op = OpSlot()


def begin(
    link: Connection,
    group: Group,
    kind: str,
    collective: Callable[..., Work | None],
    tensor: Tensor,
    *args: object,
) -> Callable[[], None]:
    """Start a collective of torch; what is returned waits for it, as `wait_for` does."""
    if current_op.captured:
        captured = collective(tensor, *args, group=group.handle, async_op=True)
        assert captured is not None
        return lambda: _join(captured)
    counter = replace(group.counter)  # others may start before it ends
    pending = Pending(kind, current_op.name, (counter,))
    work = link.meet(pending, lambda: collective(tensor, *args, group=group.handle, async_op=True))
    assert work is not None
    return lambda: wait_for(link, pending, tensor.is_cuda, (work,))


def _join(work: Work) -> None:
    work.wait()


def wait_for(link: Connection, pending: Pending, on_device: bool, works: Sequence[Work]) -> None:
    """Wait for started works; on a device only its stream waits, and this returns at once."""
    link.watch.pending = pending
    try:
        for work in works:
            work.wait()
    except RuntimeError as error:
        raise link.explain(pending, error) from None
    if on_device:
        pending.works = works
    else:
        link.watch.pending = None


def stage(link: Connection, data: Tensor) -> Tensor:
    """`data` where the back end can take it."""
    return data.cpu() if data.is_cuda and link.staged else data
