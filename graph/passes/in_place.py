"""In-place steps: an elementwise step writes over an input that has no later use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from ...engine import boxing
from ...engine.boxing.boxing_steps import AllGather, AllReduce
from ...engine.convert import BOXING
from ...engine.meta import Meta
from ...engine.op import Bound, Kernel, Local, Op, required
from ...engine.ops.pointwise import Elementwise
from ...engine.ops.view import View
from ...kernels.memory_format_ref import format_of
from ..host_copies import FETCH, RELEASE, WAIT
from ..ir import Program, ProgramStep, Value
from .pass_utils import run_of


def in_place(program: Program) -> Program:
    """The program with every step in place of an input where that is safe in every world.

    Only memory that one of its steps allocates is written to. What a step reads or makes does
    not change, nor a bit of any result: see `_Memory.free`.
    """
    memory = _Memory(program.steps, {value.number for value in program.wanted()})
    found = []
    for index, step in enumerate(program.steps):
        place = memory.free(index, step)
        found.append(step if place is None else _placed(step, place))
    return replace(program, steps=found)


@dataclass(slots=True)
class _Storage:
    """Memory that values may share: that of `root`, which the step `maker` made."""

    root: Value
    maker: ProgramStep | None  # None where it is not known to be of these steps alone
    last: float = -1  # the index of the last step that needs any of it


@dataclass(slots=True)
class _Memory:
    """The values that may share memory, and their lifetimes."""

    steps: Sequence[ProgramStep]
    kept: set[int]  # the numbers of what is needed after them
    _of: dict[int, _Storage] = field(default_factory=dict)  # by the number of a value
    _other: set[int] = field(default_factory=set)  # values that are not all of it, in its order

    def __post_init__(self) -> None:
        reads = [(v.number, at) for at, step in enumerate(self.steps) for v in step.reads()]
        first = dict(reversed(reads))
        for index, step in enumerate(self.steps):
            for value in step.reads():
                storage = self._of.setdefault(value.number, _Storage(value, None))
                storage.last = max(storage.last, index)
            for value in step.outputs:
                self._of[value.number] = self._made(step, value)
            if step.start is not None:
                # Where ranks are processes it is under way until just before its first reader.
                under_way = first.get(step.outputs[0].number, len(self.steps)) - 0.5
                storage = self._of[step.source.number]
                storage.last = max(storage.last, under_way)
            for value in (*step.reads(), *step.outputs):
                if value.number in self.kept:
                    self._of[value.number].last = len(self.steps)

    def _made(self, step: ProgramStep, value: Value) -> _Storage:
        if not step.aliases and (step.origin is not BOXING or allocates(step)):
            return _Storage(value, step)
        if step.origin in (RELEASE, WAIT):
            return self._of[next(step.reads()).number]
        if type(step.op) is not View or any(v.number in self._other for v in step.reads()):
            self._other.add(value.number)
        storages = [self._of[each.number] for each in step.reads()]
        if len(storages) != 1 or step.op is None:  # a boxing may alias on some ranks only
            for storage in storages:
                storage.maker = None
            return _Storage(value, None)
        return storages[0]

    def free(self, index: int, step: ProgramStep) -> Value | None:
        """The input whose memory the step's result may take; None if there is none.

        It was allocated by a step for this value (or one that is the same elements in another
        shape), nothing needs it afterwards or is sending it, and no other input lies in it. Where
        one process has all ranks, replicas share memory: a rank's result must not be put where
        another rank's input is.
        """
        if type(step.op) is not Elementwise or step.op.into is None:
            return None
        inputs = {value.number: value for value in step.reads()}
        storages = [self._of[number] for number in inputs]
        for value, storage in zip(inputs.values(), storages, strict=True):
            if (
                value.number not in self._other
                and value.meta is step.outputs[0].meta
                and storage.last == index
                and storages.count(storage) == 1
                and storage.maker is not None
                and allocates(storage.maker)
                and _own(value.meta, storage.root.meta, [each.meta for each in inputs.values()])
            ):
                return value
        return None


def allocates(step: ProgramStep) -> bool:
    """Whether the step allocates memory for each value that it makes, in both worlds.

    Of an op with several results that is known where it declares how they lie. What a source gives
    may be memory of the program. A boxing may give a part of what it made, or a part of what it was
    given, but not where its last act is to make a whole for a group.
    """
    if step.op is not None:
        return not step.aliases and (step.op.num_outputs == 1 or bool(step.op.order))
    if step.origin is not BOXING:
        return step.origin is FETCH
    given, (made,) = step.source, step.outputs
    plan = boxing.plan(given.meta, made.meta)
    return (
        given.meta.placement is made.meta.placement
        and not made.meta.partial
        and type(plan.steps[-1]) in (AllReduce, AllGather)
    )


def _own(meta: Meta, root: Meta, metas: Sequence[Meta]) -> bool:
    """Whether ranks that share memory of a value (`meta`, a view of `root`) share the result, too.

    They may share it along axes where it is broadcast. If all that a step reads is so, it is run
    for one of them.
    """
    placement = root.placement
    if meta.placement is not placement:
        return False
    shared = [meta.nd_sbp[axis].is_broadcast or root.nd_sbp[axis].is_broadcast
              for axis in range(0 if placement is None else placement.ndim)]  # fmt: skip
    return all(
        each.nd_sbp[axis].is_broadcast
        for each in metas
        for axis, is_shared in enumerate(shared)
        if is_shared
    )


class InPlace(Op):
    """An elementwise op that writes its result into its argument number `index`.

    Where arguments are not all in row-major order, nor all in one other memory format, it allocates
    the result after all: there the order of the result's elements, and the loop over them, may not
    be those of that argument.
    """

    def __init__(self, op: Elementwise, index: int) -> None:
        self.name = op.name
        self.op = op
        self.index = index

    def bind(self, local: Local, attrs: tuple[object, ...]) -> Kernel:
        index, plain = self.index, local.pick(self.op.kernel)
        into = local.pick_into(self.op.kernel, required(self.op.into))

        def kernel(*args: object) -> object:
            for arg in args:
                if isinstance(arg, torch.Tensor) and not arg.is_contiguous():
                    return into(*args, out=args[index]) if _in_one_format(args) else plain(*args)
            return into(*args, out=args[index])

        # The same without a loop, for most ops; small tensors take no longer than a few calls.

        def of_one(x: torch.Tensor, *attrs: object) -> object:
            if x.is_contiguous() or format_of(x) is not None:
                return into(x, *attrs, out=x)
            return plain(x, *attrs)

        def of_two(x: torch.Tensor, y: torch.Tensor, *attrs: object) -> object:
            if x.is_contiguous() and y.is_contiguous():
                return into(x, y, *attrs, out=y if index else x)
            if _in_one_format((x, y)):
                return into(x, y, *attrs, out=y if index else x)
            return plain(x, y, *attrs)

        run = local.around(plain, kernel)
        if run is kernel and None not in local.inputs and len(local.inputs) <= 2:
            run = of_one if len(local.inputs) == 1 else of_two
        return Bound(run, *attrs)


def _in_one_format(args: Sequence[object]) -> bool:
    """Whether the tensors among them have one shape and one memory format."""
    first, *others = [arg for arg in args if isinstance(arg, torch.Tensor)]
    lies = first.shape, first.stride()
    return format_of(first) is not None and all((x.shape, x.stride()) == lies for x in others)


def _placed(step: ProgramStep, place: Value) -> ProgramStep:
    step = replace(step, place=place)
    run = run_of(placed_op(step), step.input_metas, step.output_metas, step.attrs)
    return replace(step, run=run)


def placed_op(step: ProgramStep) -> InPlace:
    """The op that an in-place elementwise step runs."""
    assert type(step.op) is Elementwise and step.place is not None
    return InPlace(step.op, step.inputs.index(step.place))
