"""Layout graph: a program without the boxings that ops need, and the layouts that ops may have.

Nodes are steps: ops whose layouts can be chosen, moves (boxings that the user asked for), and
others. Each node wants its inputs in some layouts and produces outputs in some. Where they differ,
there is one boxing for all nodes that want the value in the same layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from ...engine.meta import Meta
from ...engine.op import Metas
from ...engine.sbp import Sbp, broadcast, partial_sum, split
from ...engine.signature_choice import legal_layouts, op_time
from ..ir import Program, ProgramStep, Value
from .pass_utils import is_boxing

_MAX_FORMS = 1024  # of an op; with more, those near its present one count


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
        """The layouts in which it requires its inputs."""
        return self.form.outputs if self.is_move else self.form.inputs


class LayoutGraph:
    """The nodes of a program, and the layout of every value.

    With `axis` the forms of a node differ along that axis of its mesh alone.
    """

    def __init__(self, program: Program, axis: int | None = None) -> None:
        self.program = program
        self.axis = axis
        self.nodes: list[Node] = []
        self.meta: dict[int, Meta] = {}  # of each value, by number
        self.maker: dict[int, Node] = {}
        self._roots: dict[int, int] = {}  # by number of a value that a boxing for an op made
        self.boxings: dict[int, ProgramStep] = {}  # by number of what they make: those for ops
        self._forms: dict[object, tuple[Form, ...]] = {}
        self._partials = {partial_sum}
        for value in (*program.inputs, *(v.value for v in program.variables)):
            self.meta[value.number] = value.meta
        for step in program.steps:
            self._add(step)

    def root(self, value: Value) -> int:
        """The number of the value that this one is a layout of."""
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
            self._partials.update(sbp for sbp in meta.nd_sbp if sbp.is_partial)

    def _is_free(self, node: Node) -> bool:
        step = node.step
        if node.is_move:
            # The gradient of a boxing comes back as it was produced: no layout was requested.
            old, new = step.source.meta, step.outputs[0].meta
            return step.backward and old.nd_sbp == new.nd_sbp
        metas = [meta for meta in node.form.inputs if meta is not None]
        return step.op is not None and bool(metas) and metas[0].placement is not None

    def lay(self, node: Node, form: Form) -> None:
        """Set the form of the node."""
        node.form = form
        for number, meta in zip(node.makes, form.outputs, strict=True):
            self.meta[number] = meta

    # What else might be.

    def forms(self, node: Node) -> tuple[Form, ...]:
        """Every form that a node may have, its own first; one tuple for steps that are alike."""
        step, form = node.step, node.form
        layouts = form.inputs, form.outputs
        kinds = tuple(map(type, step.inputs))
        key = (layouts, node.free, node.is_move, step.origin, step.attrs, kinds)
        if key not in self._forms:
            found = {layouts: form}
            if node.free:
                for each in _moves(form, self.axis) if node.is_move else self._legal(step, form):
                    found.setdefault((each.inputs, each.outputs), each)
            self._forms[key] = tuple(found.values())
        return self._forms[key]

    def _legal(self, step: ProgramStep, form: Form) -> Iterator[Form]:
        op = step.op
        assert op is not None
        pairs = zip(step.inputs, form.inputs, strict=True)
        given = [value if meta is None else meta for value, meta in pairs]
        found = legal_layouts(op, given, form.inputs, form.outputs, step.attrs, self.axis)
        if len(found) > _MAX_FORMS:
            found = [layouts for layouts in found if _changed(layouts, form) <= 2]
        for inputs, outputs in found:
            if self._is_useful(inputs) and op.decompose(inputs, step.attrs) is None:
                yield form_of(step, inputs, outputs)

    def _is_useful(self, inputs: Metas) -> bool:
        """Whether no input is a partial maximum or the like where the program has none."""
        partial = [meta for meta in inputs if meta is not None and meta.partial]
        return all(
            sbp in self._partials for meta in partial for sbp in meta.nd_sbp if sbp.is_partial
        )


def form_of(step: ProgramStep, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> Form:
    """The form of a step on values in these layouts."""
    takes = 0.0
    if step.op is not None and outputs[0].placement is not None:
        takes = op_time(step.op, inputs, outputs)
    return Form(tuple(inputs), tuple(outputs), takes)


def _changed(layouts: tuple[Metas, tuple[Meta, ...]], form: Form) -> int:
    """The axes along which other layouts differ from a form."""
    inputs = zip(layouts[0], form.inputs, strict=True)
    pairs = [*inputs, *zip(layouts[1], form.outputs, strict=True)]
    axes = {
        axis
        for a, b in pairs
        if a is not None and b is not None
        for axis, (new, old) in enumerate(zip(a.nd_sbp, b.nd_sbp, strict=True))
        if new is not old
    }
    return len(axes)


def _moves(form: Form, only: int | None) -> Iterator[Form]:
    """The layouts in which a boxing whose layout is free may leave a value."""
    (meta,) = form.outputs
    assert meta.placement is not None
    choices: list[Sequence[Sbp]] = []
    for axis, parts in enumerate(meta.placement.shape):
        kinds = [split(dim) for dim, size in enumerate(meta.shape) if size >= parts]
        stays = parts == 1 or only not in (None, axis)
        choices.append([meta.nd_sbp[axis]] if stays else [*kinds, broadcast, partial_sum])
    for nd_sbp in product(*choices):
        yield Form(form.inputs, (meta.like(nd_sbp=nd_sbp),), 0.0)
