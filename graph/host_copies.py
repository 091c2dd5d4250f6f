"""Host copies: the steps that keep a value in host memory while nothing on the device needs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import torch

from ..engine.tensor import Shards
from .ir import ProgramStep, Run, Value

OFFLOAD, RELEASE, FETCH, WAIT = "offload", "release", "fetch", "wait"  # the origins of the steps


def host_copies(
    value: Value, made: tuple[Value, Value, Value, Value], maker: ProgramStep, reader: ProgramStep
) -> tuple[ProgramStep, ProgramStep, ProgramStep, ProgramStep]:
    """The steps that copy `value` to the host and back: each copy has a start and a wait.

    They make the values `made`: the copy on the host, the same when nothing needs `value` any more,
    the one on the device, and the same when it is there. The first two steps belong to the module
    and stage of `maker`, and to forward; the others to those of `reader`, and to backward.
    """
    kept, away, fetched, there = made
    copy = _HostCopy()
    offload = _step(OFFLOAD, copy.offload, (value,), kept, maker, note="on the host")
    release = _step(RELEASE, copy.release, (kept, value), away, maker)
    back = replace(reader, backward=True)
    fetch = _step(FETCH, copy.begin, (away,), fetched, back, note="from the host")
    wait = _step(WAIT, copy.end, (fetched,), there, back)
    return offload, replace(release, aliases=True), fetch, replace(wait, aliases=True)


def _step(
    origin: str, run: Run, given: tuple[Value, ...], made: Value, near: ProgramStep, note: str = ""
) -> ProgramStep:
    return ProgramStep(
        origin, origin, given, (), (made,), run, scope=near.scope, backward=near.backward,
        recomputation=near.recomputation, stage=near.stage, line=near.line,
        micro_batch=near.micro_batch, note=note,
    )  # fmt: skip


class _HostCopy:
    """One value on its way to the host and back, once for each micro-batch.

    On a GPU both copies are made on the device's stream of copies, in the order of the steps, from
    and to pinned memory. Torch's allocators keep what a copy still uses: `record_stream` tells the
    one of the device, and the one of pinned memory notes each copy itself.
    """

    def __init__(self) -> None:
        self._devices: list[torch.device] = []
        # When copies are done, by the identities of results, which are there until that time.
        self._copied: dict[int, tuple[torch.device, torch.cuda.Event]] = {}

    def offload(self, shards: Shards) -> Shards:
        self._devices = [shard.device for shard in shards]
        return _each_once(self._to_host, shards, self._devices)

    def release(self, kept: Shards, shards: Shards) -> Shards:
        return self.end(kept)

    def begin(self, shards: Shards) -> Shards:
        return _each_once(self._to_device, shards, self._devices)

    def end(self, shards: Shards) -> Shards:
        for shard in shards:
            copied = self._copied.pop(id(shard), None)  # None: waited for, as a replica's
            if copied is not None:
                device, event = copied
                torch.cuda.current_stream(device).wait_event(event)
        return shards

    def _to_host(self, x: torch.Tensor, device: torch.device) -> torch.Tensor:
        if device.type != "cuda":
            return _cloned(x)
        kept = torch.empty(_extent(x), dtype=x.dtype, pin_memory=True)
        return self._copy(x, kept, device, on_device=x)

    def _to_device(self, kept: torch.Tensor, device: torch.device) -> torch.Tensor:
        if device.type != "cuda":
            return _cloned(kept)
        # Of the stream that computes, so that it is free when the last step on it is done.
        fetched = torch.empty(_extent(kept), dtype=kept.dtype, device=device)
        return self._copy(kept, fetched, device, on_device=fetched)

    def _copy(
        self, x: torch.Tensor, made: torch.Tensor, device: torch.device, on_device: torch.Tensor
    ) -> torch.Tensor:
        """Copy `x` to `made`, with its strides, in the order of the stream of copies."""
        stream = _copy_stream(device)
        # What is copied may not be written yet, and what had the memory before may still be read.
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            made.copy_(_flat(x), non_blocking=True)
            done = stream.record_event()
        on_device.record_stream(stream)  # an error may free it before the end
        copied = made.as_strided(x.shape, x.stride())
        self._copied[id(copied)] = device, done
        return copied


def _each_once(
    copy: Callable[[torch.Tensor, torch.device], torch.Tensor],
    shards: Shards,
    devices: Sequence[torch.device],
) -> Shards:
    """The copies of all shards; ranks that share memory share the copy."""
    different = {id(shard): (shard, at) for shard, at in zip(shards, devices, strict=True)}
    made = {key: copy(*each) for key, each in different.items()}
    return tuple([made[id(shard)] for shard in shards])


def _cloned(x: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, which kernels may tell from others in their last bits."""
    return _flat(x).clone().as_strided(x.shape, x.stride())


def _flat(x: torch.Tensor) -> torch.Tensor:
    """The memory from the first to the last element as a vector."""
    return x.as_strided((_extent(x),), (1,))


def _extent(x: torch.Tensor) -> int:
    return extent(tuple(x.shape), x.stride())


def extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """The number of elements from the first to the last one.

    >>> extent((2, 3), (3, 1)), extent((2, 3), (0, 1)), extent((0, 3), (3, 1))
    (6, 3, 0)
    """
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream of a device's copies to and from the host, which run in the order of steps."""
    return torch.cuda.Stream(device)
