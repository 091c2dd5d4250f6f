"""Layout graph: a program without the boxings that ops need, and the cost of layouts.

Nodes are steps: ops whose layouts can be chosen, moves (boxings that the user asked for), and
others. Each node wants its inputs in some layouts and produces outputs in some. Where they differ,
there is one boxing for all nodes that want the value in the same layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...engine.meta import Meta
from ...engine.sbp import broadcast, partial_sum, split
from ...engine.signature_choice import op_time, signatures_along
from ..ir import Program, ProgramStep, Value
from .pass_utils import is_boxing, time

Want: TypeAlias = tuple[Meta, int, "int | None"]  # the layout, the repetition and the stage


@dataclass(frozen=True, slots=True)
class Form:
    """A layout of a node's inputs and outputs, and the seconds that it takes."""

    inputs: tuple[Meta | None, ...]
    outputs: tuple[Meta, ...]
    time: float


@dataclass(eq=False, slots=True)
class Node:
    """A step, with the values that it reads and makes, by number."""

    index: int  # in the order of the program
    step: ProgramStep
    reads: tuple[int | None, ...]  # None for what is no value
    makes: tuple[int, ...]
    form: Form
    is_move: bool  # a boxing: what it reads is wanted in the layout that it makes
    free: bool = False  # whether its form may be chosen

    @property
    def wanted(self) -> tuple[Meta | None, ...]:
        """The layouts in which it wants what it reads."""
        return self.form.outputs if self.is_move else self.form.inputs


class LayoutGraph:
    """The nodes of a program, and for every value the layouts in which nodes want it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.nodes: list[Node] = []
        self.meta: dict[int, Meta] = {}  # of each value, by number
        self.wants: dict[int, dict[Want, int]] = {}
        self.maker: dict[int, Node] = {}
        self.readers: dict[int, list[Node]] = {}
        self.time = 0.0
        self._roots: dict[int, int] = {}  # by number of a value that a boxing for an op made
        self.boxings: dict[int, ProgramStep] = {}  # by number of what they make: those for ops
        self._forms: dict[object, list[Form]] = {}
        for value in (*program.inputs, *(v.value for v in program.variables)):
            self.meta[value.number] = value.meta
        for step in program.steps:
            self._add(step)
        for value in program.wanted():
            root = self.root(value)
            near = self.near(value)
            if near is not None:
                self._want(root, (value.meta, near.again, near.stage), 1)
        self.time = sum(node.form.time for node in self.nodes)
        self.time += sum(self._boxing_time(number) for number in self.wants)

    def root(self, value: Value) -> int:
        """The number of the value that this one is, but for its layout."""
        return self._roots.get(value.number, value.number)

    def near(self, value: Value) -> ProgramStep | None:
        """The step that makes a value; None for inputs and variables."""
        maker = self.maker.get(value.number)
        return self.boxings.get(value.number) if maker is None else maker.step

    def _add(self, step: ProgramStep) -> None:
        if is_boxing(step) and not step.asked:
            self._roots[step.outputs[0].number] = self.root(step.source)
            self.boxings[step.outputs[0].number] = step
            return
        reads = tuple([self.root(v) if type(v) is Value else None for v in step.inputs])
        makes = tuple([value.number for value in step.outputs])
        form = form_of(step, step.input_metas, step.output_metas)
        node = Node(len(self.nodes), step, reads, makes, form, is_boxing(step))
        node.free = self._is_free(node)
        self.nodes.append(node)
        for number, meta in zip(makes, form.outputs, strict=True):
            self.meta[number] = meta
            self.maker[number] = node
        for read in dict.fromkeys(reads):
            if read is not None:
                self.readers.setdefault(read, []).append(node)
        self._note(node, 1)

    def _is_free(self, node: Node) -> bool:
        step = node.step
        if node.is_move:
            # The gradient of a boxing comes back as it was produced: nobody asked for a layout.
            old, new = step.source.meta, step.outputs[0].meta
            return step.backward and old.nd_sbp == new.nd_sbp
        metas = [meta for meta in node.form.inputs if meta is not None]
        return step.op is not None and bool(metas) and metas[0].placement is not None

    # What is wanted.

    def _want(self, number: int, want: Want, count: int) -> None:
        wants = self.wants.setdefault(number, {})
        wants[want] = wants.get(want, 0) + count
        if not wants[want]:
            del wants[want]

    def _note(self, node: Node, count: int) -> None:
        """Add (or with -1 take away) what a node wants."""
        for number, meta in zip(node.reads, node.wanted, strict=True):
            if number is not None and meta is not None:
                self._want(number, (meta, node.step.again, node.step.stage), count)

    def _boxing_time(self, number: int) -> float:
        start = self.meta[number]
        return sum([time(start, want[0]) for want in self.wants[number]])

    def touched(self, node: Node) -> list[int]:
        """The values whose boxing depends on the node's form."""
        reads = [number for number in node.reads if number is not None]
        return list(dict.fromkeys([*reads, *(n for n in node.makes if n in self.wants)]))

    def boxed(self, number: int) -> bool:
        """Whether a value is boxed in a way that costs something."""
        return number in self.wants and self._boxing_time(number) > _NOTHING

    def apply(self, node: Node, form: Form) -> float:
        """Lay the node out in another form; returns by how many seconds all takes longer."""
        touched = self.touched(node)
        change = form.time - node.form.time - sum([self._boxing_time(n) for n in touched])
        self.lay(node, form)
        change += sum([self._boxing_time(n) for n in touched])
        self.time += change
        return change

    def lay(self, node: Node, form: Form) -> None:
        """Lay the node out in another form, with `time` left as it was."""
        self._note(node, -1)
        node.form = form
        self._note(node, 1)
        for number, meta in zip(node.makes, form.outputs, strict=True):
            self.meta[number] = meta

    def misfits(self, node: Node) -> int:
        """How many of the node's inputs and outputs are not as they are made or wanted."""
        reads = zip(node.reads, node.wanted, strict=True)
        return sum(n is not None and meta is not self.meta[n] for n, meta in reads) + sum(
            any(want[0] is not self.meta[n] for want in self.wants.get(n, ())) for n in node.makes
        )

    # What else might be.

    def forms(self, node: Node) -> list[Form]:
        """The forms of a node that differ from its own along one axis; alike for steps alike."""
        step, form = node.step, node.form
        if not node.free:
            return []
        layouts = form.inputs, form.outputs
        kinds = tuple(map(type, step.inputs))
        key = form.outputs if node.is_move else (step.origin, *layouts, step.attrs, kinds)
        if key not in self._forms:
            made = _moves(form) if node.is_move else _signatures(step, form)
            self._forms[key] = [each for each in made if (each.inputs, each.outputs) != layouts]
        return self._forms[key]


_NOTHING = 1e-7  # seconds: slices and fills take less


def form_of(step: ProgramStep, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> Form:
    """The form of a step on values in these layouts."""
    takes = 0.0
    if step.op is not None and outputs[0].placement is not None:
        takes = op_time(step.op, inputs, outputs)
    return Form(tuple(inputs), tuple(outputs), takes)


def _signatures(step: ProgramStep, form: Form) -> list[Form]:
    op, placement = step.op, form.outputs[0].placement
    assert op is not None and placement is not None
    given = [v if meta is None else meta for v, meta in zip(step.inputs, form.inputs, strict=True)]
    found = []
    for axis, parts in enumerate(placement.shape):
        if parts == 1:
            continue
        for inputs, outputs in signatures_along(
            op, given, form.inputs, form.outputs, step.attrs, axis
        ):
            if op.decompose(inputs, step.attrs) is None:
                found.append(form_of(step, inputs, outputs))
    return found


def _moves(form: Form) -> list[Form]:
    (meta,) = form.outputs
    assert meta.placement is not None
    found = []
    for axis, parts in enumerate(meta.placement.shape):
        kinds = [split(dim) for dim, size in enumerate(meta.shape) if size >= parts]
        for sbp in (*kinds, broadcast, partial_sum):
            nd_sbp = (*meta.nd_sbp[:axis], sbp, *meta.nd_sbp[axis + 1 :])
            found.append(Form(form.inputs, (meta.like(nd_sbp=nd_sbp),), 0.0))
    return found
