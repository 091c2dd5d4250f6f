"""Stream capture: records what a function launches on a device, to launch it again at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol, TypeVar

import torch

from ...errors import OnefoldError
from ...kernels.staging import Outside
from ..garbage import uncollected

T = TypeVar("T")


class Capturer(Protocol):
    """Captures functions of one device type, which then share memory."""

    @property
    def device_type(self) -> str: ...

    def renew(self) -> None:
        """Use a new memory pool for later captures; earlier ones are not replayed again."""

    def capture(
        self, function: Callable[[], T], static: Sequence[torch.Tensor]
    ) -> tuple[Callable[[], object], T]:
        """Record the function's launches without running them; returns a replay and the result.

        The result is there after the first replay. The function reads the tensors in `static`, at
        least one, and allocates what else it needs.
        """
        ...

    def outside(self, device: torch.device) -> Outside:
        """A function that opens a block inside a capture, with memory outside its pool."""
        ...

    def finished(self, device: torch.device | None) -> Callable[[], bool]:
        """A function that tells whether all work launched on a device so far is done."""
        ...


class CudaCapturer:
    """Captures by CUDA's stream capture. All graphs allocate from one memory pool."""

    device_type = "cuda"

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        # Torch refuses a pool whose graphs are gone while some of its memory is still in use.
        self._pool = torch.cuda.graph_pool_handle()

    def capture(
        self, function: Callable[[], T], static: Sequence[torch.Tensor]
    ) -> tuple[Callable[[], object], T]:
        device = static[0].device
        # The stream is also restored where a capture fails, which `torch.cuda.graph` does not do.
        with torch.cuda.device(device), torch.cuda.stream(torch.cuda.current_stream(device)):
            graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(device)
            # Garbage, such as an older graph, may call what is not allowed in a capture when it
            # is freed. Other threads, such as those of data loaders and of NCCL, may go on.
            with (
                _cleaned_up(graph, static[0], self._pool),
                uncollected(),
                torch.cuda.graph(graph, self._pool, stream, capture_error_mode="thread_local"),
            ):
                result = function()
        return graph.replay, result

    def outside(self, device: torch.device) -> Outside:
        # Only what is allocated for the stream that is captured comes from the pool.
        return partial(torch.cuda.stream, torch.cuda.current_stream(device))

    def finished(self, device: torch.device | None) -> Callable[[], bool]:
        done: Callable[[], bool] = torch.cuda.current_stream(device).record_event().query
        return done


_failed: list[torch.cuda.CUDAGraph] = []  # kept, as torch's allocators may still refer to them


@contextmanager
def _cleaned_up(
    graph: torch.cuda.CUDAGraph, like: torch.Tensor, pool: tuple[int, int]
) -> Iterator[None]:
    """A capture after which torch's allocator and generators are intact, even if it fails.

    If something illegal invalidates a capture, torch before 2.12 tells neither of them that the
    capture has ended (PyTorch's pull request 180395). For the rest of the process, new captures and
    replays of other graphs would fail, generators would raise errors, and memory that other streams
    have used would not be freed.
    """
    try:
        yield
    except BaseException:
        _end(graph, like, pool)
        raise


def _end(graph: torch.cuda.CUDAGraph, like: torch.Tensor, pool: tuple[int, int]) -> None:
    index = like.device.index
    with suppress(RuntimeError):  # raised if torch has already ended it
        torch._C._cuda_endAllocateToPool(index, pool)
        torch._C._cuda_releasePool(index, pool)
        _failed.append(graph)
    # The end of a capture that succeeds resets the generators.
    other, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(like.device)
    with (
        suppress(RuntimeError),
        torch.cuda.graph(other, stream=stream, capture_error_mode="thread_local"),
    ):
        like.new_zeros(())


def failure(error: Exception) -> Exception:
    """Why a capture failed: its end may raise another error than the call at which it failed."""
    both = (error, error.__context__)
    return next((each for each in both if isinstance(each, OnefoldError)), error)


def capturer(device_type: str) -> Capturer | None:
    """The capturer for a type of device; None if there is none."""
    return CudaCapturer() if device_type == "cuda" and torch.version.hip is None else None
