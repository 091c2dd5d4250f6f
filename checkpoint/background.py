"""Saving in the background: copies of the data, and the thread that writes them."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import torch

from ..distributed.collectives import gather_objects
from ..distributed.world import world
from ..engine.commit import readers
from ..errors import CheckpointError
from .sharded_writer import Work

_GLANCE = 0.1  # seconds between two looks whether the thread is still there
_LARGE = 1 << 22  # bytes that are worth threads


class Saving:
    """A checkpoint that is written in the background.

    `path` is its folder, which exists once the checkpoint is complete.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._problem = ""
        self.reported = False  # whether a caller has waited and got the result
        self._thread: threading.Thread | None = None
        self._copied = threading.Event()

    def start(self, run: Callable[[], None], copy: Callable[[], None] | None) -> None:
        """Write, in this thread; or with `copy` in one of its own, where it is called first.

        What is written by `engine.commit.finish`, such as a step of an optimizer, waits until it
        has returned. What comes before, such as forward and backward, does not.
        """
        if copy is None:
            self._run(run, None)
            return
        # Not a daemon: a program that ends waits for its last checkpoint.
        name = f"save {self.path.name}"
        self._thread = threading.Thread(target=self._run, args=(run, copy), name=name)
        readers.append(self._wait_until_copied)
        self._thread.start()

    def _wait_until_copied(self) -> None:
        while not self._copied.wait(_GLANCE) and not self.done():
            pass

    def _run(self, run: Callable[[], None], copy: Callable[[], None] | None) -> None:
        try:
            if copy is not None:
                copy()
                self._copied.set()
            run()
        except CheckpointError as error:
            self._problem = str(error)
        except Exception as error:  # noqa: BLE001 - nobody else would hear of it
            self._problem = f"{self.path} was not completed: {type(error).__name__}: {error}"

    def done(self) -> bool:
        """Whether nothing is written any more; `wait` says whether the checkpoint is complete."""
        return self._thread is None or not self._thread.is_alive()

    def wait(self) -> Path:
        """Return the folder when the checkpoint is complete. Every process of the job calls this.

        Raises CheckpointError, on every process, where it could not be written. The next `save`
        waits as well, and raises what nobody waited for.
        """
        if self._thread is not None:
            self._thread.join()
        if not self.reported:
            here = world()
            if here.launched:
                problems = gather_objects(self._problem, tuple(range(here.size)))
                self._problem = next((each for each in problems if each), "")
            self.reported = True
        if self._problem:
            raise CheckpointError(self._problem)
        return self.path


class Copies:
    """Copies of pieces, since the next step changes them; the next save reuses their memory."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[object, ...], torch.Tensor] = {}

    def of(self, works: Iterable[Work]) -> tuple[list[Work], Callable[[], None]]:
        """The works with copies on the cpu, and what makes these, in any thread.

        From a GPU they are copied on a stream of their own, into pinned memory: the host goes on at
        once, and the GPU's next work waits for the copies.
        """
        buffers: dict[tuple[object, ...], torch.Tensor] = {}
        streams: dict[torch.device, torch.cuda.Stream] = {}
        copied = []
        on_cpu: list[tuple[torch.Tensor, torch.Tensor]] = []
        for work in works:
            value = work.value
            key = (work.key, value.dtype, value.shape, value.device)
            buffer = self._buffers.get(key)
            if buffer is None:
                buffer = torch.empty(value.shape, dtype=value.dtype, pin_memory=value.is_cuda)
            buffers[key] = buffer
            if value.is_cuda:
                _copy_on_stream(buffer, value, streams)
            elif work.foreign:
                buffer.copy_(value)
            else:
                on_cpu.append((buffer, value))
            copied.append(work._replace(value=buffer))
        self._buffers = buffers
        events = []
        for device, stream in streams.items():
            event = stream.record_event()
            torch.cuda.current_stream(device).wait_event(event)
            events.append((device, event))

        def copy() -> None:
            _copy_together(on_cpu)
            _wait_for(events)

        return copied, copy


def _wait_for(events: Iterable[tuple[torch.device, torch.cuda.Event]]) -> None:
    """Wait for events of devices, in any thread.

    A thread begins on device 0, where the driver would take memory for each process that asks.
    """
    for device, event in events:
        with torch.cuda.device(device):
            event.synchronize()


def _copy_together(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Copy into each first the second; a core alone does not use all of the memory's speed."""
    helpers = min(4, os.cpu_count() or 1) - 1
    left = deque(sorted(pairs, key=lambda pair: -pair[0].nbytes))

    def copy() -> None:
        with suppress(IndexError):  # none is left
            while True:
                buffer, value = left.popleft()
                buffer.copy_(value)

    if not helpers or sum(buffer.nbytes for buffer, _ in pairs) < _LARGE:
        copy()
        return
    with ThreadPoolExecutor(helpers) as pool:
        others = [pool.submit(copy) for _ in range(helpers)]
        copy()  # rather than wait
        for other in others:
            other.result()


def _copy_on_stream(
    buffer: torch.Tensor, value: torch.Tensor, streams: dict[torch.device, torch.cuda.Stream]
) -> None:
    stream = streams.get(value.device)
    if stream is None:
        stream = streams[value.device] = torch.cuda.Stream(value.device)
        stream.wait_stream(torch.cuda.current_stream(value.device))
    with torch.cuda.stream(stream):
        buffer.copy_(value, non_blocking=True)
    value.record_stream(stream)
