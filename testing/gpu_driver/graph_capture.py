"""Stands in for CUDA's stream capture: launches are recorded, and checked for later replays.

A replay launches the same kernels with the same numbers and addresses. So all memory that they read
must stay, and numbers of the host must be the same in each step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar
from weakref import ref

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ...kernels.staging import Later, Outside, copied_by_now
from .launch_checks import Form, address_of

T = TypeVar("T")

# Operators whose result the host reads, or whose shape depends on values: both wait for the stream.
WAITING = set("_local_scalar_dense equal is_nonzero masked_select nonzero unique_dim".split())
_REUSED = "a replay reads memory that may be another's by then"
_OVERWRITTEN = "a replay may write over what was copied from the host after the capture"
_FROM_THE_HOST = "lift_fresh"  # what makes a tensor of numbers of Python's


class CapturedLaunch(NamedTuple):
    """One launch: its kernel, and the arguments without and with those that are addresses."""

    form: Form
    grid: tuple[object, ...]
    numbers: tuple[tuple[str, object], ...]
    addresses: tuple[tuple[str, int], ...]


class _Memory(NamedTuple):
    """Where a static tensor was at the capture."""

    tensor: ref[torch.Tensor]
    address: int
    size: int

    def moved(self) -> bool:
        tensor = self.tensor()
        return tensor is None or tensor.untyped_storage().data_ptr() != self.address


@dataclass(eq=False)
class CapturedGraph:
    """The launches of one capture, and the memory that they may use.

    `operators` are those of torch, each with the numbers that it was given.
    """

    static: list[_Memory]
    launches: list[CapturedLaunch] = field(default_factory=list)
    operators: list[tuple[str, list[object]]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    pool: list[torch.UntypedStorage] = field(default_factory=list)
    outside: list[torch.UntypedStorage] = field(default_factory=list)
    is_outside: bool = False  # whether memory that is allocated now is none of the pool's
    copied: list[list[float]] = field(default_factory=list)  # numbers of the host, once

    def place_faults(self) -> Iterator[tuple[str, str]]:
        """Addresses that are neither in the pool of the graphs nor in static memory that is there.

        In a capture this finds tables and numbers that nothing keeps, in a replay also what moved.
        """
        spans = [(x.data_ptr(), x.nbytes()) for x in (*self.pool, *self.outside)]
        spans += [(m.address, m.size) for m in self.static if not m.moved()]
        spans.sort()
        starts = [start for start, _ in spans]
        for launch in self.launches:
            for name, address in launch.addresses:
                index = bisect_right(starts, address) - 1
                if address and (index < 0 or address > sum(spans[index])):
                    yield str(launch.form), f"{name}: {_REUSED}"


def number_faults(first: CapturedGraph, second: CapturedGraph) -> Iterator[tuple[str, str]]:
    """What differs between the captures of two steps, so that a replay of the first is wrong.

    Each with the form that it is in.
    """
    counts = [(len(graph.launches), len(graph.operators)) for graph in (first, second)]
    if counts[0] != counts[1]:
        yield (
            "a capture",
            "{} launches and {} operators of torch, ".format(*counts[0])
            + ("and in another step {} and {}".format(*counts[1])),
        )
        return
    for (name, numbers), (_, others) in zip(first.operators, second.operators, strict=True):
        if numbers != others:
            yield name, f"{numbers} are captured, and another step has {others}"
    for once, then_copied in zip(first.copied, second.copied, strict=False):
        if once != then_copied:
            yield "a capture", f"{once} are copied once, and another step has {then_copied}"
    for one, other in zip(first.launches, second.launches, strict=True):
        if (one.form.name, one.grid) != (other.form.name, other.grid):
            yield (
                str(one.form),
                f"grid {one.grid}, and in another step {other.form.name} {other.grid}",
            )
            continue
        for (name, number), (_, then) in zip(one.numbers, other.numbers, strict=False):
            if number is not then and number != then:
                yield str(one.form), f"{name}: {number} is captured, and another step has {then}"


class _Watch(TorchDispatchMode):
    """Sees what torch does in a capture: allocations, work with the host, waiting."""

    def __init__(self, graph: CapturedGraph) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph = graph
        self._of_host: dict[int, torch.Tensor] = {}  # by storage, which is kept

    def __torch_dispatch__(
        self,
        function: OpOverload,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        result = function(*args, **(kwargs or {}))
        name = function._schema.name.removeprefix("aten::")
        given = _tensors((args, kwargs))
        of_host = [self.is_of_host(x) for x in given]
        made_by_host = name == _FROM_THE_HOST or (bool(given) and all(of_host))
        if name in WAITING and not made_by_host:
            self.graph.faults.append(f"{name} waits for the device in a capture")
        numbers: list[object] = [
            x for x in tree_leaves((args, kwargs)) if isinstance(x, (int, float))
        ]
        self.graph.operators.append((name, numbers))
        if any(of_host) and not made_by_host:
            self.graph.faults.append(f"{name} copies from the host's memory in a capture")
        for x in _tensors(result):
            storage = x.untyped_storage()
            if made_by_host:
                self._of_host.setdefault(storage._cdata, x)
            elif storage._cdata not in self._of_host and all(
                storage._cdata != other.untyped_storage()._cdata for other in given
            ):
                memory = self.graph.outside if self.graph.is_outside else self.graph.pool
                memory.append(storage)
        return result

    def is_of_host(self, x: torch.Tensor) -> bool:
        return x.untyped_storage()._cdata in self._of_host


class Recording(Protocol):
    """A `GpuDriver`, as what captures uses it."""

    replays: int

    def capturing(self, graph: CapturedGraph) -> AbstractContextManager[None]: ...

    def note(self, form: str, texts: Iterable[str]) -> None: ...


class DriverCapturer:
    """In place of `CudaCapturer`; tensors are on the CPU. The pool keeps all its memory."""

    device_type = "cpu"

    def __init__(self, gpu: Recording) -> None:
        self._gpu = gpu
        self._graph: CapturedGraph | None = None  # while it is captured
        self.renew()

    def renew(self) -> None:
        self._pool: list[torch.UntypedStorage] = []

    def outside(self, device: torch.device) -> Outside:
        return self._apart

    @contextmanager
    def _apart(self) -> Iterator[None]:
        assert self._graph is not None, "a block outside of a capture, and nothing is captured"
        self._graph.is_outside = True
        try:
            yield
        finally:
            self._graph.is_outside = False

    def finished(self, device: torch.device | None) -> Callable[[], bool]:
        return lambda: True

    def capture(
        self, function: Callable[[], T], static: Sequence[torch.Tensor]
    ) -> tuple[Callable[[], object], T]:
        memory = []
        for x in static:
            storage = x.untyped_storage()
            memory.append(_Memory(ref(x), storage.data_ptr(), storage.nbytes()))
        graph = self._graph = CapturedGraph(memory, pool=self._pool)
        later: Later = []
        with self._gpu.capturing(graph), _Watch(graph) as watch:
            result = function()
            later = copied_by_now()
        # Tables of addresses may be others.
        numbers = [x for _, x in later if x.is_floating_point() and watch.is_of_host(x)]
        graph.copied = [x.tolist() for x in numbers]
        pool = {storage._cdata for storage in self._pool}
        if any(there.untyped_storage()._cdata in pool for there, _ in later):
            graph.faults.append(_OVERWRITTEN)
        self._gpu.note("a capture", graph.faults)

        def replay() -> None:
            for form, text in graph.place_faults():
                self._gpu.note(form, [text])
            self._gpu.replays += 1

        for form, text in graph.place_faults():
            self._gpu.note(form, [text])
        return replay, result


def launch_of(form: Form, grid: Sequence[object], args: Sequence[object]) -> CapturedLaunch:
    """A launch with its arguments by name."""
    named = [
        (name, str(kind), arg) for (name, kind), arg in zip(form.types.items(), args, strict=True)
    ]
    return CapturedLaunch(
        form,
        tuple(grid),
        tuple((name, arg) for name, kind, arg in named if not kind.startswith("*")),
        tuple((name, address_of(arg)) for name, kind, arg in named if kind.startswith("*")),
    )


def _tensors(tree: object) -> list[torch.Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]
