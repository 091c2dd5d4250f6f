"""One compiled graph: captured for one input signature, its passes run, ready to execute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..engine import interp
from ..engine.generator import noting_draws
from ..engine.grad_mode import enable_grad
from ..engine.meta import Meta
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError
from .capture import Capture
from .config import GraphModule
from .draws import Draws
from .executor import Executable
from .ir import Program, verify
from .memory.plan import MemoryPlan, plan_memory
from .micro_batches import micro_metas, place_draws
from .nest import leaves, rebuild
from .passes.common import share_common
from .passes.unused import drop_unused

PASSES = (share_common, drop_unused)


@dataclass(frozen=True)
class State:
    """What a graph owns when it is captured."""

    tensors: Mapping[str, Tensor]  # parameters and buffers, by path
    paths: Mapping[int, str]  # of the modules, by their identities
    views: Mapping[int, GraphModule]  # the modules' settings, likewise
    trained: Sequence[Tensor]  # what the optimizers update


@dataclass(frozen=True)
class Compiled:
    """A program and the form of what it takes and returns."""

    program: Program
    executable: Executable
    returned: Any  # the nest that build returned, of captured tensors
    micro_batches: int = 1
    memory_plans: dict[int, MemoryPlan] = field(default_factory=dict, repr=False)  # by rank

    def memory(self, rank: int) -> MemoryPlan:
        """What the rank needs for one call; planned once."""
        found = self.memory_plans.get(rank)
        if found is None or type(rank) is not int:  # True is no rank, but equals 1
            found = plan_memory(self.program, rank, self.micro_batches)
            self.memory_plans[rank] = found
        return found

    def arrange(self, outputs: Sequence[Tensor]) -> Any:
        """The outputs in the nest that build returned."""
        remaining = iter(outputs)
        return rebuild(self.returned, lambda _: next(remaining), "the result")


def compile_graph(
    build: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    metas: Sequence[Meta],
    state: State,
    micro_batches: int,
) -> Compiled:
    """Capture `build` on inputs of these metas (in the order of the tensors in args, kwargs).

    With more than one of `micro_batches` the program is for one of them. Whatever happens, every
    tensor is afterwards as it was before.
    """
    cut = micro_metas(metas, micro_batches)
    program, returned = _capture(build, args, kwargs, cut, state)
    if micro_batches > 1 and program.draws:
        whole, _ = _capture(build, args, kwargs, metas, state)
        place_draws(program, whole, micro_batches)
    verify(program)
    for each in PASSES:
        program = each(program)
        verify(program)
    return Compiled(program, Executable(program), returned, micro_batches)


def _capture(
    build: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    metas: Sequence[Meta],
    state: State,
) -> tuple[Program, Any]:
    if interp.capturing():
        raise OnefoldRuntimeError(
            "a graph was called inside another graph's build(); call its module instead"
        )
    capture = Capture(state.tensors, state.paths, state.views)
    before = [(t, t.grad) for t in _distinct([*state.tensors.values(), *state.trained])]
    remaining = iter(enumerate(metas))

    def captured(_: Tensor) -> Tensor:
        index, meta = next(remaining)
        return capture.input(meta, f"input.{index}")

    try:
        _set_gradients((tensor, None) for tensor, _ in before)
        given, named = rebuild((args, kwargs), captured, "an input")
        with noting_draws() as draws, interp.using(capture), enable_grad():
            result = build(*given, **named)
            capture.program.draws = Draws(draws)
        program = capture.program
        program.outputs = [capture.value_of(x) for x in leaves(result, "the result of build()")]
        _note_gradients(capture, [tensor for tensor, _ in before], state.trained)
        capture.finish()
    finally:
        capture.undo()
        _set_gradients(before)
    return program, rebuild(result, lambda x: Tensor(x.shards, x.meta), "the result of build()")


def _note_gradients(capture: Capture, tensors: Iterable[Tensor], trained: Sequence[Tensor]) -> None:
    """Keep the gradients that optimizers use. Raises OnefoldRuntimeError when there are none."""
    made = [tensor for tensor in tensors if tensor.grad is not None]
    if made and not trained:
        raise OnefoldRuntimeError(
            "build() called backward(), but the graph has no optimizer to use the gradients; add "
            "one with self.add_optimizer(optimizer) in __init__"
        )
    if trained and not made:
        raise OnefoldRuntimeError(
            "the graph has an optimizer, but build() made no gradients; call loss.backward() there"
        )
    wanted = {id(tensor) for tensor in trained}
    for tensor in made:
        if id(tensor) in wanted:
            assert tensor.grad is not None
            capture.note_gradient(tensor, tensor.grad)


def _distinct(tensors: Iterable[Tensor]) -> list[Tensor]:
    return list({id(tensor): tensor for tensor in tensors}.values())


def _set_gradients(pairs: Iterable[tuple[Tensor, Tensor | None]]) -> None:
    for tensor, grad in pairs:
        if tensor.node is not None:
            tensor.node.grad = grad
