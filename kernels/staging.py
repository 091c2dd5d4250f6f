"""Staging: small tables and numbers of the host on their way to a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor

Later = list[tuple[Tensor, Tensor]]  # memory, and what is to be copied into it
Outside = Callable[[], AbstractContextManager[object]]  # a block whose memory is no capture's


class _Copies(NamedTuple):
    later: Later
    outside: Outside


_copies: ContextVar[_Copies | None] = ContextVar("copies", default=None)


def staged(x: Tensor, device: torch.device) -> Tensor:
    """A tensor in memory from which a copy to the device is queued.

    From memory of the host that is not pinned CUDA may first wait for the stream.
    """
    return x.pin_memory() if device.type == "cuda" and x.device.type == "cpu" else x


def to_device(x: Tensor, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor on a device, in a dtype if one is given. Only copies to the host are waited for."""
    copies = _copies.get()
    if copies is not None and x.device.type == "cpu":
        with copies.outside():
            there = torch.empty(x.shape, dtype=dtype or x.dtype, device=device)
        copies.later.append((there, x))
        return there
    return staged(x, device).to(device, dtype, non_blocking=can_be_late(device))


def can_be_late(device: torch.device) -> bool:
    """Whether a copy to this device may be non-blocking.

    Work on a GPU waits for the copy by itself. The host may read its memory before a non-blocking
    copy to it is done.
    """
    return device.type != "cpu"


@contextmanager
def copied_later(outside: Outside = nullcontext) -> Iterator[Later]:
    """The block in which `to_device` gives memory whose values are copied after it, by `fill`.

    A stream capture cannot copy what the host has: the copy would be repeated in each replay.
    That memory is allocated `outside` of the capture: in its own, a replay would first write what
    was there before.
    """
    later: Later = []
    token = _copies.set(_Copies(later, outside))
    try:
        yield later
    finally:
        _copies.reset(token)


def is_copied_later() -> bool:
    """Whether this is inside the block of `copied_later`."""
    return _copies.get() is not None


def copied_by_now() -> Later:
    """What is to be copied after the block that this is in."""
    copies = _copies.get()
    return [] if copies is None else [*copies.later]


def fill(later: Later) -> None:
    """Copy what `to_device` was given in the block; nothing waits for it."""
    for there, x in later:
        there.copy_(staged(x, there.device), non_blocking=True)
