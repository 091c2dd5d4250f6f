"""Tracing of a model for stages: which modules and ops its forward calls, and where it is cut.

Modules are called as a whole, with all that their own code does, unless there is a cut inside.
Between them single ops are noted, with the numbers that they were called with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from ...engine.generator import record_draws
from ...engine.grad_mode import no_grad
from ...engine.interpreter import Through, using
from ...engine.ops.creation import Source
from ...engine.tensor import Tensor
from ...errors import OnefoldRuntimeError, OnefoldValueError, user_line
from ...nn.module import Module

R = TypeVar("R")


class SplitPoint(Enum):
    """Where a model is cut: before or after a submodule is called."""

    BEGINNING = 1
    END = 2


@dataclass(frozen=True, slots=True)
class Made:
    """Stands for a tensor that an input or a call gave, by its number."""

    number: int


@dataclass(frozen=True, slots=True)
class Named:
    """Stands for a parameter or buffer of the model, by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Held:
    """Stands for a tensor from elsewhere, by its place among those of the trace."""

    index: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a module of the model (`path`), or of an op."""

    stage: int
    function: Callable[..., Any] | None
    path: str
    given: Any  # (args, kwargs), in which others stand for tensors
    results: tuple[int, ...]  # the numbers of the tensors that it gives
    name: str  # of the module or op
    makes_new: bool = False  # whether it is a creation function, which reads no tensor

    def __str__(self) -> str:
        names = [_shown(leaf) for leaf in tree_leaves(self.given)]
        made = ", ".join(f"%{number}" for number in self.results)
        return f"{made} = {self.name}({', '.join(names)})"


def _shown(leaf: object) -> str:
    """An argument as text."""
    if isinstance(leaf, Made):
        return f"%{leaf.number}"
    if isinstance(leaf, Named):
        return leaf.name
    return "constant" if isinstance(leaf, Held) else repr(leaf)


class StageTrace(Through):
    """Runs a model and notes its calls; `result` is what it returned, with `Made` for tensors."""

    def __init__(self, model: Module, cuts: Mapping[str, SplitPoint]) -> None:
        super().__init__(None)
        self.calls: list[Call] = []
        self.held: list[Tensor] = []
        self.stage_of: list[int] = []  # of each number: where it is made
        self.stage = 0
        self.result: Any = None
        self._cuts = cuts
        self._paths: dict[int, str] = {}
        for path, module in model.named_modules():
            self._paths.setdefault(id(module), path)
        parts = [path.split(".") for path in cuts]
        self._opened = {"", *(".".join(p[:i]) for p in parts for i in range(1, len(p)))}
        named = [*model.named_parameters(), *model.named_buffers()]
        self._named = {id(tensor): Named(name) for name, tensor in named}
        self._numbers: dict[int, Made] = {}
        self._alive: list[Tensor] = []  # whose identities are in use
        self._draws: Sequence[object] = ()
        self._drawn = 0  # how many of these modules drew

    def trace(self, model: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run the model on an example. Its buffers and generators are afterwards as before."""
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, Tensor):
                self._number(leaf)
        before = [
            (module, name, buffer, None if buffer is None else buffer.clone())
            for module in model.modules()
            for name, buffer in module._buffers.items()
        ]
        token = _current.set(self)
        try:
            with record_draws() as self._draws, no_grad(), using(self):
                self.result = self._standing(model(*args, **kwargs))
            for module, name, buffer, _ in before:
                self._check_kept(module, name, buffer)
        finally:
            _current.reset(token)
            with no_grad():
                for module, name, buffer, value in before:
                    module._buffers[name] = buffer  # forward may have put another in its place
                    if buffer is not None:
                        buffer.copy_(value)
        self._alive.clear()

    def _check_kept(self, module: Module, name: str, buffer: Tensor | None) -> None:
        """Raise OnefoldRuntimeError for a buffer that was replaced outside of called modules."""
        if self._paths[id(module)] in self._opened and module._buffers.get(name) is not buffer:
            raise OnefoldRuntimeError(
                f"pipeline: the forward of {type(module).__name__} replaces its buffer {name!r} "
                "between modules, which stages would not repeat: put that into a module of its own"
            )

    def cut(self) -> None:
        """What follows is the next stage."""
        self.stage += 1

    def run(self, call: Callable[..., R], op: Any, args: tuple[object, ...]) -> R:
        result = super().run(call, op, args)
        if len(self._draws) > self._drawn:  # outside of modules, perhaps before the op was called
            raise OnefoldRuntimeError(
                f"pipeline: random numbers are drawn between modules, at {user_line()}: put that "
                "into a module of its own, such as nn.Dropout, which draws new ones in each call"
            )
        new = isinstance(op, Source)
        self._note((args, {}), result, function=call, path="", name=op.name, makes_new=new)
        return result

    def before_change(self, tensor: Tensor) -> None:
        raise OnefoldRuntimeError(
            f"pipeline: a tensor is changed in place between modules, at {user_line()}: write "
            "x = x + 1 for x += 1, or put that into a module of its own"
        )

    def call_module(
        self,
        module: object,
        forward: Callable[..., R],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> R:
        path = self._paths.get(id(module))
        point = None if path is None else self._cuts.get(path)
        if point is SplitPoint.BEGINNING:
            self.cut()
        if path is None or path in self._opened:
            result = forward(*args, **kwargs)
        else:
            with using(None):
                result = forward(*args, **kwargs)
            self._drawn = len(self._draws)
            self._note((args, kwargs), result, function=None, path=path, name=path)
        if point is SplitPoint.END:
            self.cut()
        return result

    def _note(self, given: Any, made: Any, **call: Any) -> None:
        standing = self._standing(given)
        leaves = [leaf for leaf in tree_leaves(made) if isinstance(leaf, Tensor)]
        results = tuple([self._number(leaf) for leaf in leaves])
        self.calls.append(Call(self.stage, given=standing, results=results, **call))

    def _number(self, tensor: Tensor) -> int:
        number = len(self.stage_of)
        self.stage_of.append(self.stage)
        self._numbers[id(tensor)] = Made(number)
        self._alive.append(tensor)
        return number

    def _standing(self, tree: Any) -> Any:
        return tree_map(self._stands_for, tree)

    def _stands_for(self, leaf: object) -> object:
        if not isinstance(leaf, Tensor):
            return leaf
        found = self._numbers.get(id(leaf)) or self._named.get(id(leaf))
        if found is not None:
            return found
        self.held.append(leaf)
        return Held(len(self.held) - 1)


_current: ContextVar[StageTrace | None] = ContextVar("stage_trace", default=None)


def pipe_split() -> None:
    """In a forward that `pipeline` traces: what follows is the next stage. Else nothing."""
    trace = _current.get()
    if trace is not None:
        trace.cut()


def traced(
    model: Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    cuts: Mapping[str, SplitPoint],
) -> StageTrace:
    """The trace of a model. Raises OnefoldValueError for a cut that the forward does not reach."""
    paths = {path for path, _ in model.named_modules()}
    for path, point in cuts.items():
        if path not in paths or not path:
            raise OnefoldValueError(
                f"pipeline: split_spec names {path!r}, which is no submodule of "
                f"{type(model).__name__}; it has {', '.join(sorted(paths - {''}))}"
            )
        if not isinstance(point, SplitPoint):
            raise OnefoldValueError(
                f"pipeline: split_spec has {point!r} for {path!r}; it takes SplitPoint.BEGINNING "
                "and SplitPoint.END"
            )
    trace = StageTrace(model, cuts)
    trace.trace(model, args, kwargs)
    if trace.stage < len(cuts):
        raise OnefoldValueError(
            f"pipeline: the forward of {type(model).__name__} was cut {trace.stage} times, but "
            f"split_spec has {len(cuts)} points: name modules that it calls, of which none is "
            "inside another one that is called as a function"
        )
    return trace


@dataclass(frozen=True)
class TracePart:
    """What one stage does: its calls, and the numbers of what it takes and gives."""

    index: int
    calls: tuple[Call, ...]
    example: Any  # of the first stage: the forms of the model's arguments, and their structure
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    result: Any  # of the last stage
    is_last: bool

    def __str__(self) -> str:
        takes = "the arguments" if self.index == 0 else ", ".join(f"%{n}" for n in self.takes)
        gives = "the result" if self.is_last else ", ".join(f"%{n}" for n in self.gives)
        calls = [f"  {call}" for call in self.calls]
        return "\n".join([f"stage {self.index}, of {takes}:", *calls, f"  gives {gives}"])


def part_of(trace: StageTrace, stage: int, example: Any) -> TracePart:
    """What a stage of a trace does; the first one takes arguments as in the example."""
    last = stage == trace.stage
    return TracePart(
        index=stage,
        calls=tuple([call for call in trace.calls if call.stage == stage]),
        example=example if stage == 0 else None,
        takes=() if stage == 0 else _used_later(trace, stage - 1),
        gives=_used_later(trace, stage),
        result=trace.result if last else None,
        is_last=last,
    )


def _used_later(trace: StageTrace, stage: int) -> tuple[int, ...]:
    """The numbers that are made up to a stage and used in later ones, in order."""
    later = [call.given for call in trace.calls if call.stage > stage]
    if stage < trace.stage:
        later.append(trace.result)
    found = {leaf.number for leaf in tree_leaves(later) if isinstance(leaf, Made)}
    return tuple(sorted(number for number in found if trace.stage_of[number] <= stage))


def structure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
    """The leaves of arguments, and how they are nested."""
    return tree_flatten((tuple(args), dict(sorted(kwargs.items()))))
