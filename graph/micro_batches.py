"""Micro-batches without stages: inputs are split along dim 0, run in turn, and outputs combined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter, signature

from ..engine import interpreter
from ..engine.convert import box
from ..engine.grad_mode import no_grad
from ..engine.meta import Meta
from ..engine.ops.arithmetic import add, mul
from ..engine.ops.cat_split import cat, chunk, stack
from ..engine.ops.dropout import DropoutKey
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from .capture import Capture
from .ir import Program, ProgramStep, Value, substitute
from .passes.accumulate_products import begun
from .pytree import tree_leaves
from .random_draws import Draws

NONE: frozenset[int] = frozenset()


def whole_inputs(
    build: Callable[..., object], args: Sequence[object], kwargs: dict[str, object], names: set[str]
) -> frozenset[int]:
    """The inputs that each micro-batch gets whole: those of these parameters of `build`."""
    parameters = signature(build).parameters.values()
    by_place = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    places = [p.name for p in parameters if p.kind in by_place]
    rest = [p.name for p in parameters if p.kind is Parameter.VAR_POSITIONAL]
    # Too many arguments are an error of the call of build.
    positional = zip([*places, *rest * len(args)], args, strict=False)
    values = [*positional, *sorted(kwargs.items())]
    given = [name for name, _ in values]
    if not names <= set(given):
        raise OnefoldValueError(
            f"set_gradient_accumulation_steps: whole names {min(names - set(given))!r}, but build "
            f"was called with {', '.join(given)}"
        )
    flags = [name in names for name, value in values for _ in tree_leaves(value, "an input")]
    return frozenset(index for index, is_whole in enumerate(flags) if is_whole)


def micro_metas(metas: Sequence[Meta], count: int, whole: frozenset[int] = NONE) -> list[Meta]:
    """The metas of one micro-batch. Raises OnefoldValueError when a dim 0 is not divisible."""
    if count == 1:
        return list(metas)
    found = []
    for index, meta in enumerate(metas):
        if index in whole:
            found.append(meta)
            continue
        if meta.ndim == 0 or meta.shape[0] % count:
            raise OnefoldValueError(
                f"input {index} of the graph has shape {tuple(meta.shape)}, whose dim 0 cannot be "
                f"cut into {count} micro-batches; make the batch divisible, change "
                "config.set_gradient_accumulation_steps, or name the parameter of build in its "
                "whole=(...) if each micro-batch needs all of it"
            )
        found.append(meta.like(shape=(meta.shape[0] // count, *meta.shape[1:])))
    return found


def place_draws(program: Program, whole: Program, count: int) -> None:
    """Set for each dropout of a micro-batch's program the dim along which it splits the batch's.

    `whole` is the same build captured for the whole batch. A dropout whose mask does not grow
    with the batch in one dim, or that is not there for the whole batch, draws new numbers for each.
    """
    mine, theirs = _dropouts(program), _dropouts(whole)
    if len(mine) != len(theirs):
        return
    for (key, shape), (_, whole_shape) in zip(mine, theirs, strict=True):
        grown = [dim for dim, size in enumerate(shape) if whole_shape[dim] != size]
        if len(grown) == 1 and whole_shape[grown[0]] == count * shape[grown[0]]:
            key.draw.part = (grown[0], count, 0)


def _dropouts(program: Program) -> list[tuple[DropoutKey, tuple[int, ...]]]:
    """Each dropout, with the shape of its mask."""
    return [
        (given, tuple(step.outputs[0].meta.shape))
        for step in program.steps
        for given in step.inputs
        if type(given) is DropoutKey
    ]


def pieces(
    inputs: Sequence[Tensor], count: int, whole: frozenset[int] = NONE
) -> Iterator[list[Tensor]]:
    """The inputs of each micro-batch, in the layouts of the whole inputs."""
    if count == 1 or not inputs:
        for _ in range(count):
            yield list(inputs)
        return
    metas = micro_metas([x.meta for x in inputs], count, whole)
    cut = [(x,) * count if index in whole else chunk(x, count, 0) for index, x in enumerate(inputs)]
    for micro in zip(*cut, strict=True):
        yield [
            x if x.meta is meta or not x.is_global else box(x, meta)
            for x, meta in zip(micro, metas, strict=True)
        ]


def join(results: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Each output of all micro-batches: a scalar gives one entry each, others join on dim 0."""
    return [
        stack(parts, 0) if parts[0].ndim == 0 else cat(parts, 0)
        for parts in zip(*results, strict=True)
    ]


def unroll(
    program: Program, metas: Sequence[Meta], count: int, whole: frozenset[int] = NONE
) -> Program:
    """The program of a call whose inputs have these metas, from that of one micro-batch.

    The inputs are split, the steps are repeated for each micro-batch, gradients are added up as
    they are made and divided at the end, and outputs are joined. A micro-batch reads the values
    that the one before it assigned to variables, and those that it carries.
    """
    if count == 1:
        return program
    capture, inputs = _begun(program, metas)
    steps = capture.program.steps
    same: dict[int, Value] = {}  # by number of a value: what it is in this micro-batch
    totals: list[Tensor] = []
    results: list[list[Tensor]] = []
    carried = {value.number for _, value in program.carried}
    sums = [value.number in carried for _, value in program.gradients]
    with interpreter.using(capture), no_grad():
        for index, piece in enumerate(pieces(inputs, count, whole)):
            for value, tensor in zip(program.inputs, piece, strict=True):
                same[value.number] = capture.value_of(tensor)
            if index and program.draws:
                steps.append(_next_draws(program.draws, index))
            if index:
                same |= {value.number: same[last.number] for value, last in program.carried}
            for step in program.steps if index else begun(program, program.steps):
                made = tuple([capture.continued(value) for value in step.outputs])
                place = substitute(step.place, same)
                mine = replace(step.substitute(same), outputs=made, place=place)
                steps.append(replace(mine, micro_batch=index))
                pairs = zip(step.outputs, made, strict=True)
                same.update((value.number, new) for value, new in pairs)
            found = program.substitute([], same)
            results.append([capture.adopt(value) for value in found.outputs])
            grads = [capture.adopt(value) for _, value in found.gradients]
            totals = [
                new if is_sum or not index else add(total, new)
                for total, new, is_sum in zip(totals or grads, grads, sums, strict=True)
            ]
            same.update((variable.value.number, value) for variable, value in found.assigns)
        outputs = join(results)
        means = [mul(total, 1.0 / count) for total in totals]
    variables = [variable for variable, _ in program.gradients]
    return replace(
        program,
        inputs=capture.program.inputs,
        steps=steps,
        outputs=[capture.value_of(x) for x in outputs],
        assigns=[(variable, same[variable.value.number]) for variable, _ in program.assigns],
        gradients=list(zip(variables, map(capture.value_of, means), strict=True)),
        carried=[],
        micro_batches=count,
    )


def _begun(program: Program, metas: Sequence[Meta]) -> tuple[Capture, list[Tensor]]:
    """A capture that continues a program of one micro-batch, and the inputs of a whole call."""
    capture = Capture({}, {}, {}, numbers=program.last_number())
    named = zip(metas, program.inputs, strict=True)
    return capture, [capture.input(meta, value.name) for meta, value in named]


def slicing(
    program: Program, metas: Sequence[Meta], count: int, whole: frozenset[int] = NONE
) -> Program:
    """The steps that split the inputs of a call, for a program of one micro-batch.

    Its outputs are the inputs of each micro-batch in turn.
    """
    capture, inputs = _begun(program, metas)
    with interpreter.using(capture), no_grad():
        made = [capture.value_of(x) for piece in pieces(inputs, count, whole) for x in piece]
    return replace(capture.program, outputs=made)


@dataclass(frozen=True)
class Joining:
    """The steps of a call after its micro-batches.

    The inputs of the program are the sums over the micro-batches, the results of each micro-batch
    in turn, of which the outputs are made, and what the last one assigned.
    """

    program: Program
    sums: Sequence[Value]  # one for each of the values that are added up
    results: Sequence[Sequence[Value]]  # by micro-batch
    assigned: Sequence[Value]


def joining(
    program: Program,
    sums: Sequence[Value],
    after: Sequence[ProgramStep],
    results: Sequence[Value],
    last: Sequence[ProgramStep],
    count: int,
    numbers: int,
) -> Joining:
    """The end of a call of a program of one micro-batch.

    `sums` are the values that are added up, and `after` what makes gradients of the sums; `last`
    makes outputs of the `results` of each micro-batch. `numbers` is the largest number of a value.
    """
    capture = Capture({}, {}, {}, numbers=numbers)
    totals = {value.number: capture.continued(value) for value in sums}
    steps = [step.substitute(totals) for step in after]
    found = [[capture.continued(value) for value in results] for _ in range(count)]
    assigned = [capture.continued(variable.value) for variable, _ in program.assigns]
    outputs = []
    for values in found:
        same = {value.number: own for value, own in zip(results, values, strict=True)}
        for step in last:
            made = tuple([capture.continued(value) for value in step.outputs])
            steps.append(replace(step.substitute(same), outputs=made))
            same.update((value.number, own) for value, own in zip(step.outputs, made, strict=True))
        outputs.append([capture.adopt(same[value.number]) for value in program.outputs])
    ends = [capture.adopt(totals.get(x.number, x)) for _, x in program.gradients]
    with interpreter.using(capture), no_grad():
        joined = outputs[0] if count == 1 else join(outputs)
        means = ends if count == 1 else [mul(x, 1.0 / count) for x in ends]
    variables = [variable for variable, _ in program.gradients]
    tail = replace(
        program,
        inputs=[*totals.values(), *(value for each in found for value in each), *assigned],
        steps=[*steps, *capture.program.steps],
        outputs=[capture.value_of(x) for x in joined],
        assigns=[(v, value) for (v, _), value in zip(program.assigns, assigned, strict=True)],
        gradients=list(zip(variables, map(capture.value_of, means), strict=True)),
        carried=[],
    )
    return Joining(tail, list(totals.values()), found, assigned)


def _next_draws(draws: Draws, index: int) -> ProgramStep:
    """Lets random calls draw what belongs to another micro-batch."""

    def run() -> tuple[()]:
        draws.move_to(index)
        return ()

    return ProgramStep("draw_for_micro_batch", "draws", (), (index,), (), run, several=True)
