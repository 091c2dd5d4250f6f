"""Executor: a program as a flat list of calls on shards. Values are freed after their last use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..engine.commit import Change, Write, finish
from ..engine.inplace import note_written, take, writable
from ..engine.meta import Meta
from ..engine.tensor import Shards, Tensor, from_shards
from ..errors import OnefoldRuntimeError
from . import cuda_graphs as on_demand
from .async_boxing import steps_with_async_boxing
from .call_list import ERRORS, Call, CallList, Filled, Places, watchers
from .cuda_graphs import stream_capture
from .host_copies import OFFLOAD
from .ir import Program, Value
from .unrolled_calls import failed_call, unrolled
from .writing_calls import split, writes_of

if TYPE_CHECKING:
    from .cuda_graphs.captured_calls import CapturedCalls


class Executor(ABC):
    """Runs a program for the ranks that this process owns.

    The same list serves one process per rank and all ranks in one process: what differs is only
    how many shards stand in each place. The values are those of eager, since the steps are the
    dispatcher's own plans.
    """

    no_cuda_graph = "config.enable_cuda_graph() was not called"

    def __init__(self, program: Program, end: Program, micro_batches: int) -> None:
        """`end` runs at the end of a call: the program itself, or work after it."""
        self.program = program
        self.places = Places()
        place = self.places.of
        self.variables = [(place(v.value), v.tensor, v.value) for v in program.variables]
        self.inputs = self.places.all_of(program.inputs)
        self.outputs = [(place(value), value.meta) for value in end.outputs]
        self.assigns = [(v.tensor, place(value)) for v, value in end.assigns]
        self._input_assigns = end.input_assigns
        self._copies = end.copies
        self._micro_batches = micro_batches
        self._written = [variable.tensor for variable in end.written()]
        self._own = {id(tensor) for tensor in self._written}
        kept = kept_by_outputs(program)
        self._kept = [v.tensor for v in program.variables if v.value.number in kept]
        self._kept_inputs = [i for i, v in enumerate(program.inputs) if v.number in kept]

    @property
    def cuda_graph_reason(self) -> str:
        """Why the last run did not replay CUDA graphs; empty if it did."""
        return self.no_cuda_graph

    def cuda_graphs(self) -> str:
        """The CUDA graphs of a run and the steps between them, one line each."""
        return ""

    @abstractmethod
    def call_lists(self) -> list[CallList]:
        """All calls; the lists may be changed between runs."""

    @abstractmethod
    def compute(self, places: Filled, inputs: Sequence[Shards]) -> deque[Write]:
        """Run the steps on variables that are in place already, and return the remaining writes.

        Those, from the first that writes into variables on, are still to be made.
        """

    def make_writable(self) -> None:
        """Give the variables that steps write memory that is not shared."""
        for tensor in self._written:
            writable(tensor)

    def run(self, inputs: Sequence[Tensor], last: Iterable[Write] = ()) -> list[Tensor]:
        """Run once and return the outputs. `last` is called with the writes of the program.

        Random calls take the generators' next ids. An error changes nothing, unless it is raised
        by what writes; an interrupt leaves all as before or as after the run. Raises
        OnefoldRuntimeError when a tensor from outside is no longer what it was at the capture.
        """
        self.program.draws.begin(self._micro_batches)
        for _, tensor, value in self.variables:
            if tensor.meta is not value.meta:
                raise _changed(tensor, value)
        given = [x.shards for x in inputs]
        for index in self._kept_inputs:
            inputs[index].shared = True  # an output may be its memory, even a parameter's
        for x in inputs:
            if id(x) in self._own:
                x.shared = True  # steps may read it after the parameter was written
        self.make_writable()
        for copy in self._copies:
            copy.refresh()
        places = self.places.template.copy()
        for place, tensor, _ in self.variables:
            places[place] = tensor.shards
        writes = self.compute(places, given)
        if self._input_assigns:  # first: a view that cannot be written is an error
            writes.appendleft(partial(self._assign_inputs, places, inputs))
        writes.append(partial(self._assign, places))
        writes.extend(last)
        finish(writes)
        for copy in self._copies:
            copy.note()
        return [_shared(places[place], meta) for place, meta in self.outputs]

    def _assign_inputs(self, places: Filled, inputs: Sequence[Tensor]) -> Iterable[Change]:
        """Let inputs be what the run left them."""
        for given, made in self._input_assigns:
            place, meta = self.outputs[made]
            if places[place]:  # else of a stage on other ranks
                take(inputs[given], _shared(places[place], meta))
        return ()

    def _assign(self, places: Filled) -> Iterable[Change]:
        """Update tensors, generators, the tape and views to the state after the run."""
        for tensor in self._kept:
            tensor.shared = True
        for tensor, place in self.assigns:
            if places[place]:  # else of a stage on other ranks
                take(tensor, _shared(places[place], tensor.meta))
        self.program.draws.advance()
        return note_written(self._written) if self._written else ()


class Executable(Executor):
    """Runs a program without stages: its steps in turn."""

    def __init__(
        self, program: Program, cuda_graphs: bool = False, communication: bool = False
    ) -> None:
        """`communication` says whether CUDA graphs hold that, too."""
        super().__init__(program, program, program.micro_batches)
        calls = self.places.calls(steps_with_async_boxing(program), program.wanted())
        self._calls, self._writing = split(calls)
        self._wants_cuda_graphs = cuda_graphs
        self._why_between = ""  # why communication is not captured, though it was asked for
        options = {"between": ""} if communication else {}
        self._captured = self._capturing(**options) if cuda_graphs else None
        self._unrolled: Callable[[Filled], None] | None = None
        self._unrolled_of: list[Call] | None = None

    def _capturing(self, **options: str) -> CapturedCalls | None:
        """The capturer for the devices of the calls, if there is one."""
        program = self.program
        if any(step.origin is OFFLOAD for step in program.steps):
            # What is on its way may be in memory that the next segment writes.
            self.no_cuda_graph = (
                "with activation_offloading copies between the device and its host overlap with "
                "the steps, on a stream of their own"
            )
            return None
        values = [*program.inputs, *(variable.value for variable in program.variables)]
        kinds = sorted({value.meta.device_type for value in values})
        capturer = next(filter(None, map(stream_capture.capturer, kinds)), None)
        if capturer is None:
            self.no_cuda_graph = (
                "CUDA graphs need a GPU of NVIDIA's, and the tensors are on "
                f"{' and '.join(kinds) or 'no device'}"
            )
            return None
        assigned = {id(tensor) for tensor, _ in self.assigns}
        captured_calls = on_demand.captured_calls
        ends = captured_calls.Ends(
            self.inputs,
            [place for place, _, _ in self.variables],
            [place for place, tensor, _ in self.variables if id(tensor) in assigned],
            [*(place for place, _ in self.outputs), *(place for _, place in self.assigns)],
        )
        found: CapturedCalls = captured_calls.CapturedCalls(
            self._calls, self._writing, ends, program.draws, capturer, **options
        )
        return found

    @property
    def cuda_graph_reason(self) -> str:
        found = self._captured
        if found is None:
            return self.no_cuda_graph
        between = self._why_between and f"communication runs between graphs: {self._why_between}"
        return found.reason or found.update.why_eager or between

    def cuda_graphs(self) -> str:
        if self._captured is not None and not self._captured.failed:
            return str(self._captured)
        return f"# no CUDA graphs: {self.cuda_graph_reason}" if self._wants_cuda_graphs else ""

    def call_lists(self) -> list[CallList]:
        return [self._calls, self._writing]

    def compute(self, places: Filled, inputs: Sequence[Shards]) -> deque[Write]:
        self.program.draws.move_to(0)
        for place, shards in zip(self.inputs, inputs, strict=True):
            places[place] = shards
        if self._captured is not None and self._captured.why_between:
            self._why_between = self._captured.why_between
            self._captured = self._capturing(between=self._why_between)
        if self._captured is not None and self._captured.run(places):
            return self._captured.writes(places)
        if watchers or self._unrolled_of is None:  # a program that runs once is not unrolled
            self._unrolled_of = []
            self._calls.run(places)
            return writes_of(self._writing, places)
        if self._unrolled is None or self._unrolled_of != self._calls.calls:
            self._unrolled_of = [*self._calls.calls]
            self._unrolled = unrolled(self._unrolled_of)
        try:
            self._unrolled(places)
        except ERRORS as error:
            self._calls.fail(error, failed_call(error))
        return writes_of(self._writing, places)


def _shared(shards: Shards, meta: Meta) -> Tensor:
    """A tensor of these shards, whose memory may be shared."""
    tensor = from_shards(shards, meta)
    tensor.shared = True
    return tensor


def _changed(tensor: Tensor, value: Value) -> OnefoldRuntimeError:
    return OnefoldRuntimeError(
        f"{value.name} was {value.meta!r} when the graph was compiled, but is {tensor.meta!r} now; "
        "make the graph after changing its modules"
    )


def kept_by_outputs(program: Program) -> set[int]:
    """The numbers of the values whose memory an output, assigned value or gradient may share."""
    sources: dict[int, list[Value]] = {
        value.number: list(step.reads())
        for step in program.steps
        if step.aliases
        for value in step.outputs
    }
    kept: set[int] = set()
    left = [*program.outputs, *(x for _, x in (*program.assigns, *program.gradients))]
    while left:
        value = left.pop()
        if value.number not in kept:
            kept.add(value.number)
            left.extend(sources.get(value.number, ()))
    return kept
