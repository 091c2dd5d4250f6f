"""The intermediate representation: typed values, the steps that produce them, and variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeVar

from ..distributed.world import shortened
from ..engine.autograd_tape import Edge
from ..engine.boxing.boxing_plan import BoxingPlan
from ..engine.captures import CapturedTensorError
from ..engine.meta import Meta
from ..engine.op import Op
from ..engine.sbp import short
from ..engine.tensor import Tensor, from_shards
from ..errors import OnefoldRuntimeError, user_line
from .low_copies import LowCopy
from .random_draws import Draws

UPDATE = "update"  # the scope of the optimizers' steps
HOST = "host"  # the origin of steps that make a number of the host, in no memory of a device

# From the shards of what a step reads (and what else stands among its inputs) to those it makes.
Run: TypeAlias = Callable[..., Any]
# From the metas of what a step reads to the boxings that it does itself.
Exchanges: TypeAlias = Callable[[Sequence[Meta | None]], Sequence[BoxingPlan]]

T = TypeVar("T")


class Value:
    """One value of a program: made once, by an input, a variable or a step.

    During a capture a Tensor holds it in place of shards. A tensor that outlives the capture still
    holds it; using it as shards is an error.
    """

    __slots__ = ("line", "meta", "name", "number", "owner", "scope")

    def __init__(self, number: int, meta: Meta, name: str = "", owner: object = None) -> None:
        self.number = number
        self.meta = meta
        self.name = name
        self.owner = owner  # the capture that made it
        self.scope = ""  # the module in which, and the user's line
        self.line = ""

    def __repr__(self) -> str:
        return f"%{self.name or self.number}"

    def laid(self, meta: Meta) -> Value:
        """The same value in another layout, in place of this one."""
        made = Value(self.number, meta, self.name, self.owner)
        made.scope, made.line = self.scope, self.line
        return made

    def stray(self) -> CapturedTensorError:
        """The error for a use of the value outside the build() that made it."""
        where = f" in {self.scope}" if self.scope else ""
        line = f", at {self.line}" if self.line else ""
        return CapturedTensorError(
            f"a tensor was used that was made{where} while a graph was captured{line}. It stood "
            "for a value of the program and has none outside build(), which runs once; return it "
            "from build(), or keep it in a buffer that is changed in place (buffer.copy_(x))"
        )

    def __bool__(self) -> bool:
        return True

    def _refuse(self, *_: object) -> NoReturn:
        raise self.stray()

    __len__ = __iter__ = __getitem__ = _refuse

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)  # for what asks whether it can be copied, called ...
        raise self.stray()

    @classmethod
    def __torch_function__(
        cls,
        func: object,
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> NoReturn:
        """Raise the error of `stray` when a value is passed to a torch function."""
        given = [*args, *(kwargs or {}).values()]
        nested = [
            x for each in given for x in (each if isinstance(each, (list, tuple)) else [each])
        ]
        raise next(x for x in nested if isinstance(x, cls)).stray()


def captured(value: Value, node: Edge | None = None) -> Tensor:
    """A captured tensor: it holds the value in place of shards."""
    return from_shards(value, value.meta, node)  # type: ignore[arg-type]


def value_in(tensor: Tensor) -> Value | None:
    """The value of a captured tensor; None for a tensor with shards."""
    shards: object = tensor.shards
    return shards if type(shards) is Value else None


def substitute(given: T, same: Mapping[int, Value]) -> T | Value:
    """The value in `same` for the number of this one, or the argument itself."""
    return same.get(given.number, given) if isinstance(given, Value) else given


@dataclass(frozen=True, slots=True)
class Variable:
    """A tensor that outlives the call, such as a parameter: read when a call starts.

    Steps may write into its memory, which is then its own.
    """

    value: Value
    tensor: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class ProgramStep:
    """One operation: `run` takes the shards of `inputs`, and other inputs as they are."""

    name: str  # of the op
    origin: object  # what tells ops of one name apart: the entry that was called
    inputs: tuple[object, ...]  # Values, and numbers or None as they are
    attrs: tuple[object, ...]  # already bound in `run`; for reading and comparing
    outputs: tuple[Value, ...]
    run: Run
    several: bool = False  # whether `run` returns one entry per output
    scope: str = ""  # the module that it comes from
    backward: bool = False  # whether it is part of the gradient of what the module did
    recomputation: int = 0  # the number of the recomputation, in a checkpoint; 0: none
    checkpointed: bool = False  # whether it is of a checkpointed module, which is recomputed
    saved: bool = False  # whether what it makes is kept though its module is checkpointed
    # Of what it makes, whether the module keeps activations for backward on the host; (): nothing.
    offloaded: tuple[bool, ...] = ()
    stage: int | None = None  # the pipeline stage, where there is one
    gradient_of: int = 0  # in a gradient: the number of the value whose maker is differentiated
    line: str = ""  # the user's line
    aliases: bool = False  # whether the output may share the first input's memory
    pending: Run | None = None  # what `run` does, as writes that are still to be made
    start: Run | None = None  # begins what `run` does, and returns what ends it
    exchanges: Exchanges | None = None  # which boxings it does besides, where it does any
    host: str = ""  # why no CUDA graph can do it: what the host does
    frozen: Run | None = None  # gives numbers of the host that a CUDA graph of it keeps
    repeatable: bool = True  # whether the same inputs and attributes always give the same
    op: Op | None = None  # what `run` was made from, for steps whose layouts may change
    asked: bool = True  # of a boxing: whether the program asked for it, not an op for its inputs
    place: Value | None = None  # the input in whose memory the output is put
    writes: tuple[Value, ...] = ()  # those of the inputs whose memory it changes
    micro_batch: int | None = None  # the one that it is done for; None: for all of the batch
    parts: tuple[ProgramStep, ...] = ()  # the steps that it stands for, where several became one
    note: str = ""  # what the passes did with it, for readers of the program

    def reads(self) -> Iterator[Value]:
        return (value for value in self.inputs if type(value) is Value)

    @property
    def source(self) -> Value:
        """The value that it reads, of a step that reads one, such as a boxing."""
        (value,) = self.reads()
        return value

    @property
    def input_metas(self) -> tuple[Meta | None, ...]:
        """The meta of each input; None for inputs that are not values."""
        return tuple([v.meta if type(v) is Value else None for v in self.inputs])

    @property
    def output_metas(self) -> tuple[Meta, ...]:
        return tuple([value.meta for value in self.outputs])

    def substitute(self, same: Mapping[int, Value]) -> ProgramStep:
        """The step on other values, by the numbers of its own."""
        inputs = tuple([substitute(each, same) for each in self.inputs])
        return self if inputs == self.inputs else replace(self, inputs=inputs)


@dataclass(frozen=True, slots=True, eq=False)
class Clipping:
    """A call of `clip_grad_norm_` inside build(), which becomes a step before the updates.

    With micro-batches and a scaled loss only there are the gradients that eager has. The norm of
    each is an output of the program, after those that build() returned.
    """

    params: tuple[Tensor, ...]
    max_norm: float
    norm_type: float
    error_if_nonfinite: bool
    line: str  # the user's line
    gradients: tuple[Tensor | None, ...] = field(repr=False)  # as they were captured

    def used(self) -> OnefoldRuntimeError:
        """The error for an op on the norm inside build()."""
        return OnefoldRuntimeError(
            "the norm that clip_grad_norm_ gives inside build() is known when the call has made "
            "all gradients; return it from build(), and compute with it outside. Used at "
            f"{user_line()}"
        )


class InputAssign(NamedTuple):
    """An input that is changed in place, and the output that is its new value."""

    input: int
    output: int


@dataclass(slots=True)
class Program:
    """The computation of one call of a graph. `steps` are in an order in which they can run."""

    inputs: list[Value] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    steps: list[ProgramStep] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    assigns: list[tuple[Variable, Value]] = field(default_factory=list)  # set when a call ends
    input_assigns: list[InputAssign] = field(default_factory=list)  # likewise, of inputs
    gradients: list[tuple[Variable, Value]] = field(default_factory=list)  # for the optimizers
    clippings: list[Clipping] = field(default_factory=list)  # of the gradients, in turn
    states: list[Value] = field(default_factory=list)  # what the optimizers keep
    copies: list[LowCopy] = field(default_factory=list)  # of parameters; the updates write them
    # Of one micro-batch: what it reads, and which value of the micro-batch before that is.
    carried: list[tuple[Value, Value]] = field(default_factory=list)
    updates: bool = False  # whether the optimizers' steps are among the steps
    draws: Draws = field(default_factory=lambda: Draws(()))
    micro_batches: int = 1  # how many of them the steps are for

    def substitute(self, steps: list[ProgramStep], same: Mapping[int, Value]) -> Program:
        """The program with these steps; `same` maps numbers of its values to their replacements."""
        return replace(
            self,
            steps=steps,
            outputs=[substitute(value, same) for value in self.outputs],
            assigns=[(variable, substitute(value, same)) for variable, value in self.assigns],
            gradients=[(variable, substitute(value, same)) for variable, value in self.gradients],
        )

    def makers(self) -> dict[int, ProgramStep]:
        """By the number of a value, the step that makes it."""
        return {value.number: step for step in self.steps for value in step.outputs}

    def wanted(self) -> list[Value]:
        """The values that must exist when a call ends."""
        ends = self.assigns if self.updates else [*self.assigns, *self.gradients]
        return [*self.outputs, *(value for _, value in ends)]

    def written(self) -> list[Variable]:
        """The variables into whose memory steps write."""
        numbers = {value.number for step in self.steps for value in step.writes}
        return [variable for variable in self.variables if variable.value.number in numbers]

    def last_number(self) -> int:
        """The largest number of a value."""
        values = [*self.inputs, *(variable.value for variable in self.variables), *self.states]
        values += [value for value, _ in self.carried]
        return max([*(value.number for value in values), *self.makers()], default=0)

    def free_numbers(self) -> Iterator[int]:
        """Numbers for new values."""
        return count(1 + self.last_number())

    def text(self, rank: int) -> str:
        """The text of the steps in which a rank takes part."""

        def has(value: Value) -> bool:
            placement = value.meta.placement
            return placement is None or rank in placement.position

        return "\n".join(
            show(step)
            for step in self.steps
            if not step.outputs or any(map(has, (*step.reads(), *step.outputs)))
        )

    def __str__(self) -> str:
        lines = [f"input {value!r}: {describe(value.meta)}" for value in self.inputs]
        lines += [f"variable {v.value!r}: {describe(v.value.meta)}" for v in self.variables]
        lines += [f"state {value!r}: {describe(value.meta)}" for value in self.states]
        lines += [
            f"carried {value!r}: {describe(value.meta)}, {before!r} of the micro-batch before"
            for value, before in self.carried
        ]
        part = ""
        for step in self.steps:
            if _part(step) != part:
                part = _part(step)
                lines.append(f"# {part}")
            lines.append(show(step))
        lines += [f"assign {variable.value!r} = {value!r}" for variable, value in self.assigns]
        lines += [
            f"assign {self.inputs[given]!r} = {self.outputs[made]!r}"
            for given, made in self.input_assigns
        ]
        lines += [f"gradient of {v.value!r}: {value!r}" for v, value in self.gradients]
        lines.append(f"return {', '.join(map(repr, self.outputs))}")
        return "\n".join(lines)


def _part(step: ProgramStep) -> str:
    """The part of the user's program that a step comes from."""
    micro_batch = "" if step.micro_batch is None else f", micro-batch {step.micro_batch}"
    return (step.scope or "build") + ", backward" * step.backward + micro_batch


def describe(meta: Meta) -> str:
    """A meta as a short text: dtype, shape, sbp, ranks.

    >>> import torch
    >>> describe(Meta.of((4, 5), torch.float32, device=torch.device("cpu")))
    'float32[4, 5] cpu'
    """
    text = f"{str(meta.dtype).removeprefix('torch.')}{list(meta.shape)}"
    if meta.placement is None:
        return f"{text} {meta.device}"
    ranks = shortened(meta.placement.flat_ranks)
    return f"{text} {short(meta.nd_sbp)} on {meta.placement.type} {ranks}"


def show(step: ProgramStep) -> str:
    """A step as one line: its outputs, its op and its inputs."""
    made = ", ".join(f"{value!r}: {describe(value.meta)}" for value in step.outputs)
    taken = ", ".join(map(repr, (*step.inputs, *step.attrs)))
    where = "" if step.place is None else f" in place of {step.place!r}"
    if step.writes:
        where += f" writes {', '.join(map(repr, step.writes))}"
    note = f"  # {step.note}" * bool(step.note)
    return f"{made}{' = ' * bool(made)}{step.name}({taken}){where}{note}"


def verify(program: Program) -> None:
    """Assert that every value is made exactly once, and before it is used."""
    made: set[int] = set()

    given = [variable.value for variable in program.variables]
    given += [value for value, _ in program.carried]
    for value in (*program.inputs, *given, *program.states):
        assert value.number not in made, f"{value!r} is given twice"
        made.add(value.number)
    for step in program.steps:
        for each in step.inputs:
            if type(each) is Value and each.number not in made:
                raise AssertionError(f"{each!r} is used before it is made, by {show(step)}")
        for value in step.outputs:
            assert value.number not in made, f"{value!r} is made twice, again by {show(step)}"
            made.add(value.number)
        if step.place is None and not step.writes:
            continue
        for value in step.writes if step.place is None else (step.place, *step.writes):
            assert value in step.inputs, f"{show(step)} does not read {value!r}"
    for value in program.wanted():
        assert value.number in made, f"{value!r} is wanted but never made"
    for variable, value in (*program.assigns, *program.gradients):
        assert variable.value.meta.shape == value.meta.shape, f"{variable} gets {value!r}"
