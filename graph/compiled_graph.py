"""A compiled graph: captured for one input signature, optimized by passes, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TypeAlias

import torch

from ..distributed import provenance
from ..distributed.world import world
from ..engine import interpreter
from ..engine.commit import restored
from ..engine.generator import record_draws
from ..engine.grad_mode import enable_grad
from ..engine.meta import Meta, blank_shards
from ..engine.tensor import Tensor, from_shards
from ..engine.values import from_torch
from ..errors import OnefoldRuntimeError, user_line
from .capture import Capture, Read
from .changed_inputs import keep_changed
from .debug_log import Debug
from .garbage import uncollected
from .graph_config import GraphConfig, GraphModule
from .ir import Clipping, Program, value_in, verify
from .job_summary import JobSummary, summarize
from .memory.memory_plan import MemoryPlan, plan_memory
from .memory_traffic import summary
from .micro_batches import micro_metas, place_draws, whole_inputs
from .pass_table import Compilation, rewritten
from .program_executor import Executable, Executor, kept_by_outputs
from .pytree import tree_leaves, tree_map_checked
from .random_draws import Draws
from .stages.compile_stages import compile_stages
from .stages.declared_stages import check_declared, declared
from .stages.stage_executor import Pipeline
from .stages.stage_plan import StagePlan
from .stored_layouts import StoredLayouts
from .update import Updates
from .zero import Zero

Build: TypeAlias = Callable[..., object]
Given: TypeAlias = tuple[tuple[object, ...], dict[str, object]]  # arguments, and those by name


@dataclass(frozen=True)
class State:
    """The tensors and settings of a graph when it is captured."""

    tensors: Mapping[str, Tensor]  # parameters and buffers, by path
    paths: Mapping[int, str]  # of the modules, by their identities
    views: Mapping[int, GraphModule]  # the modules' settings, likewise
    trained: Sequence[Tensor]  # what the optimizers update
    updates: Updates | None = None  # the steps with which they do
    amp: torch.dtype | None = None  # the dtype of matrix products in mixed precision
    loss_scale: Read | None = None  # what backward starts from, at every run
    debug: Debug = field(default_factory=Debug)  # what to tell of it


@dataclass(frozen=True)
class Compiled:
    """A program, and the structure of its inputs and outputs."""

    program: Program
    stages: StagePlan | None  # of a graph with stages
    cuda_graph: bool
    captures_communication: bool
    returned: object  # the tree that build returned, of captured tensors
    captured: Program = field(repr=False)  # before any pass: with the layouts that eager takes
    memory_plans: dict[int, MemoryPlan] = field(default_factory=dict, repr=False)  # by rank

    @cached_property
    def origin(self) -> int:
        """The origin of the program, which ranks compare with ONEFOLD_CHECK=1."""
        return provenance.of_program(str(self.program))

    def memory(self, rank: int) -> MemoryPlan:
        """The memory plan of the rank for one call, made once."""
        found = self.memory_plans.get(rank)
        if found is None or type(rank) is not int:  # True is no rank, but equals 1
            found = plan_memory(self.program, rank, self.stages)
            self.memory_plans[rank] = found
        return found

    @cached_property
    def executable(self) -> Executor:
        """The executor of the program for the ranks of this process."""
        if self.stages is None:
            return Executable(self.program, self.cuda_graph, self.captures_communication)
        return Pipeline(self.stages)

    def blank_outputs(self) -> list[Tensor]:
        """Tensors without data, laid out as the outputs of a call."""
        end = self.program if self.stages is None else self.stages.staged.end.program
        return [from_shards(blank_shards(value.meta), value.meta) for value in end.outputs]

    @cached_property
    def summary(self) -> JobSummary:
        """The memory and work of all ranks, equal ranks grouped."""
        return summarize(self.program, self.stages)

    def plan(self, rank: int) -> str:
        """The instructions of a rank, one line per step."""
        text = self.program.text(rank) if self.stages is None else self.stages.text(rank)
        runs = self.cuda_graph and not world().planned
        graphs = self.executable.cuda_graphs() if runs else ""
        return "\n".join(filter(None, [text, summary(self.program.steps, rank), graphs]))

    def schedule(self) -> str:
        """The schedule as a picture. Raises OnefoldRuntimeError without stages."""
        if self.stages is None:
            raise OnefoldRuntimeError(
                "the graph has no stages, so no schedule; put its modules on stages with "
                "module.to(nn.graph.GraphModule).set_stage(stage_id, placement)"
            )
        return self.stages.diagram()

    def outdated(self) -> bool:
        """Whether variables have other sbps than at the capture, but are otherwise the same."""
        moved = [v for v in self.program.variables if v.tensor.meta is not v.value.meta]
        return bool(moved) and all(
            v.tensor.meta.like(nd_sbp=v.value.meta.nd_sbp) is v.value.meta for v in moved
        )

    def arrange(self, outputs: Sequence[Tensor]) -> object:
        """The outputs, norms of gradients last, in the structure that build() returned."""
        remaining = iter(outputs)
        clippings = self.program.clippings
        norms = dict(zip(clippings, outputs[len(outputs) - len(clippings) :], strict=True))

        def given(x: Tensor) -> Tensor:
            clipping = _clipping(x)
            if clipping is None:
                return next(remaining)
            return from_torch(norms[clipping].shards[0])  # on the device where it was computed

        return tree_map_checked(self.returned, given, "the result")


@uncollected()
def compile_graph(
    build: Build,
    given: Given,
    metas: Sequence[Meta],
    state: State,
    config: GraphConfig,
    zero: Zero,
    stored: StoredLayouts,
) -> Compiled:
    """Capture `build` on inputs of these metas (in the order of the tensors in `given`).

    With micro-batches the program is for one of them. Afterwards, also after an error, every tensor
    is as before, except for parameters that `zero` stores split.
    """
    if zero.settings is not None and not state.trained:
        raise OnefoldRuntimeError(
            "enable_zero needs an optimizer, since it splits what training keeps; add one with "
            "self.add_optimizer(optimizer), or leave enable_zero out of graphs that do not train"
        )
    chooses = config.layout_search and config.layouts_ignored
    if chooses and zero.settings is not None:
        raise OnefoldRuntimeError(
            "config.enable_zero splits parameters as they are laid out, but "
            "enable_auto_parallel_ignore_user_sbp_config chooses how they are laid out, split or "
            "not; leave one of them out"
        )
    debug = state.debug
    debug.start(metas)
    ranks = check_declared(declared(state.views, state.paths))
    if ranks and config.updates_in_backward:
        raise OnefoldRuntimeError(
            "config.enable_optimizer_in_backward is for graphs without stages, since the update of "
            "a pipeline follows the backward passes of all micro-batches; leave it or the stages "
            "out"
        )
    micro_batches = config.micro_batches
    whole = whole_inputs(build, *given, set(config.whole_inputs))

    def captured() -> tuple[Program, object]:
        cut = micro_metas(metas, micro_batches, whole)
        with zero.captured_whole():
            program, returned = _capture(build, given, cut, state, whole)
            if micro_batches > 1 and program.draws:
                of_batch, _ = _capture(build, given, metas, state, whole)
                place_draws(program, of_batch, micro_batches)
        return program, returned

    before, returned = captured()
    if zero.decide(before) and zero.stored_as_is:
        zero.store()
        before, returned = captured()  # with the layouts that ops now meet
    debug.stage("captured", before)
    verify(before)
    chosen = stored.open(before) if chooses else frozenset()
    compilation = Compilation(config, ranks, metas, whole, zero, state.updates, chosen)
    plan = None
    if ranks:
        program = rewritten(before, compilation, "micro-batch")
        end = replace(compilation, read_later=frozenset(kept_by_outputs(program)))

        def finish(program: Program) -> Program:
            return rewritten(program, end, "end")

        plan = compile_stages(program, ranks, config, metas, whole, finish)
    else:
        program = rewritten(before, compilation, "micro-batch", "call", "end")
    options = config.cuda_graph, config.captures_communication
    compiled = Compiled(program, plan, *options, returned, before)
    if not world().planned:
        compiled.executable  # noqa: B018 - errors are raised now
    debug.stage("rewritten by the passes", program)
    zero.store()
    stored.store(program.variables, chosen)
    debug.finish(program)
    return compiled


def _capture(
    build: Build, given: Given, metas: Sequence[Meta], state: State, whole: frozenset[int]
) -> tuple[Program, object]:
    if interpreter.capturing():
        raise nested()
    capture = Capture(
        state.tensors, state.paths, state.views, state.amp, state.loss_scale, state.debug.lines
    )
    tensors = {id(tensor): tensor for tensor in (*state.tensors.values(), *state.trained)}
    before = [(tensor, tensor.grad) for tensor in tensors.values()]
    inputs = [capture.input(meta, f"input.{index}") for index, meta in enumerate(metas)]
    remaining = iter(inputs)

    with restored(capture.undo, partial(_set_gradients, before)):
        _set_gradients((tensor, None) for tensor, _ in before)
        args, kwargs = tree_map_checked(given, lambda _: next(remaining), "an input")
        with record_draws() as draws, interpreter.using(capture), enable_grad():
            result = build(*args, **kwargs)
            capture.program.draws = Draws(draws)
        program = capture.program
        returned = tree_leaves(result, "the result of build()")
        program.outputs = [capture.value_of(x) for x in returned if _clipping(x) is None]
        keep_changed(capture, inputs, whole)
        _record_gradients(capture, tensors.values(), state.trained)
        capture.finish()
    return program, tree_map_checked(
        result, lambda x: from_shards(x.shards, x.meta), "the result of build()"
    )


def _clipping(x: Tensor) -> Clipping | None:
    """The clipping whose norm a returned tensor is; None for a value of the program."""
    value = value_in(x)
    owner = None if value is None else value.owner
    return owner if type(owner) is Clipping else None


def nested() -> OnefoldRuntimeError:
    """The error for a graph that is called inside another one's build()."""
    return OnefoldRuntimeError(
        "a graph was called inside another graph's build(); call its module instead. Called at "
        f"{user_line()}"
    )


def _record_gradients(
    capture: Capture, tensors: Iterable[Tensor], trained: Sequence[Tensor]
) -> None:
    """Record the gradients that optimizers use. Raises OnefoldRuntimeError when there are none."""
    made = [(tensor, tensor.grad) for tensor in tensors if tensor.grad is not None]
    clippings = capture.program.clippings
    for name, called in (("backward()", made), ("clip_grad_norm_", clippings)):
        if called and not trained:
            raise OnefoldRuntimeError(
                f"build() called {name}, but the graph has no optimizer to use the gradients; add "
                "one with self.add_optimizer(optimizer) in __init__"
            )
    if trained and not made:
        raise OnefoldRuntimeError(
            "the graph has an optimizer, but build() made no gradients; call loss.backward() there"
        )
    wanted = {id(tensor) for tensor in trained}
    for clipping in clippings:
        for tensor, gradient in zip(clipping.params, clipping.gradients, strict=True):
            name = capture.name_of(tensor)
            if id(tensor) not in wanted:
                raise OnefoldRuntimeError(
                    f"clip_grad_norm_ inside build() was given {name}, which no optimizer of "
                    "the graph uses; leave it out there, or add an optimizer for it"
                )
            if tensor.grad is not gradient:
                raise OnefoldRuntimeError(
                    f"the gradient of {name} was changed after clip_grad_norm_ inside build(), "
                    "which clips when the call has made all gradients; call it last"
                )
    for tensor, gradient in made:
        if id(tensor) in wanted:
            capture.record_gradient(tensor, gradient)


def _set_gradients(pairs: Iterable[tuple[Tensor, Tensor | None]]) -> None:
    for tensor, grad in pairs:
        if tensor.node is not None:
            tensor.node.grad = grad
