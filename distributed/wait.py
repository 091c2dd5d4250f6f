"""Starts torch.distributed works and waits for them, with a timeout that names the op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from .connection import Connection
from .pending import Counter, Pending


class OpSlot:
    """The op on whose behalf collectives run. Callers set `.name` before they communicate."""

    __slots__ = ("name",)

    def __init__(self) -> None:
        self.name = ""


current_op = OpSlot()


def run_works(
    link: Connection,
    kind: str,
    counters: Sequence[Counter],
    on_device: bool,
    start: Callable[..., Sequence[Any]],
    *arguments: Any,
) -> None:
    """Start works with `start(*arguments)` and wait for them; on a device only its stream waits,
    and this returns at once.
    """
    pending = Pending(kind, current_op.name, counters)
    wait_for(link, pending, on_device, start_works(link, pending, start, *arguments))


def begin_works(
    link: Connection,
    kind: str,
    counter: Counter,
    on_device: bool,
    start: Callable[..., Sequence[Any]],
    *arguments: Any,
) -> Callable[[], None]:
    """Start works as `run_works` does; the waiting is left to what is returned."""
    pending = Pending(kind, current_op.name, (replace(counter),))  # others may start before it ends
    works = start_works(link, pending, start, *arguments)
    return lambda: wait_for(link, pending, on_device, works)


def start_works(
    link: Connection, pending: Pending, start: Callable[..., Sequence[Any]], *arguments: Any
) -> Sequence[Any]:
    """Start works with `start(*arguments)`; `pending` describes them when that fails."""
    link.watch.pending = pending
    try:
        works = start(*arguments)
    except RuntimeError as error:
        raise link.explain(pending, error) from None
    link.watch.pending = None
    return works


def wait_for(link: Connection, pending: Pending, on_device: bool, works: Sequence[Any]) -> None:
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


def stage(link: Connection, data: Tensor) -> tuple[Tensor, bool]:
    """`data` where the back end can take it, and whether that is a device."""
    if data.is_cuda and link.staged:
        return data.cpu(), False
    return data, data.is_cuda
