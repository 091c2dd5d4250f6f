"""Layout search: chooses the layouts of all ops together, where eager decides one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from ...engine.meta import Meta
from ..ir import Program, ProgramStep, Value
from .dead_code import eliminate_dead
from .layout_graph import Form, LayoutGraph, Node, form_of
from .pass_utils import box, is_boxing, relaid, time

_SWEEPS = 4
_REACH = 64  # nodes that follow the change of one
_LEAST = 1e-9  # seconds, relative to the whole program: a smaller gain is rounding


def search_layouts(program: Program) -> Program:
    """The program with the layouts of ops for which the least modelled time was found.

    From eager's layouts on, ops beside a boxing that costs something are tried in each of their
    other legal layouts; the ops around follow one by one as long as that is best for each of them;
    what makes the sum of all boxing and ops shorter is kept, until nothing does. Inputs, variables,
    outputs, assigns, gradients and boxings that the program asked for keep their layouts, but
    gradients between placements, which come as they are produced. The result never takes longer
    than `program`, which is returned as it is if nothing better was found.
    """
    flow = LayoutGraph(program)
    start = flow.time
    _CoordinateDescent(flow).run()
    if flow.time >= start * (1 - _LEAST):
        return program
    found = eliminate_dead(_ProgramWriter(flow).run())
    before, after = modelled_time(program), modelled_time(found)
    return found if after < before * (1 - _LEAST) else program


def modelled_time(program: Program) -> float:
    """Modelled seconds of all boxing and ops of a program, one after the other."""
    total = 0.0
    for step in program.steps:
        if is_boxing(step):
            total += time(step.source.meta, step.outputs[0].meta)
        elif step.outputs:
            total += form_of(step, step.input_metas, step.output_metas).time
    return total


class _CoordinateDescent:
    """Coordinate descent over the nodes of a flow, in both directions."""

    def __init__(self, flow: LayoutGraph) -> None:
        self.flow = flow
        self.tried: dict[object, Form | None] = {}  # in a sweep: what was best for a node so placed

    def run(self) -> None:
        for sweep in range(_SWEEPS):
            before = self.flow.time
            self.tried.clear()
            nodes = self.flow.nodes
            for node in nodes if sweep % 2 == 0 else reversed(nodes):
                if node.free and any(map(self.flow.boxed, self.flow.touched(node))):
                    self._improve(node)
            if sweep and self.flow.time >= before * (1 - _LEAST):
                return

    def _improve(self, node: Node) -> None:
        """Give the node the form that is best with all that follows from it.

        Layers are alike: what was best for a node among nodes alike is all that is tried again.
        """
        least = self.flow.time * (1 - _LEAST)
        best: list[tuple[Node, Form]] = []
        key = self._place(node)
        forms = self.flow.forms(node)
        if key in self.tried:
            known = self.tried[key]
            forms = [known] if known is not None else []
        self.tried.setdefault(key, None)
        for form in forms:
            log = self._try(node, form)
            if self.flow.time < least:
                least = self.flow.time * (1 - _LEAST)
                best = [(changed, changed.form) for changed, _ in log]
                self.tried[key] = form
            for changed, before in reversed(log):
                self.flow.apply(changed, before)
        for changed, form in best:
            self.flow.apply(changed, form)

    def _place(self, node: Node) -> object:
        """What tells nodes apart for the search: the ops and the forms of it and those around."""
        around = tuple([(other.step.origin, other.form) for other in self._around(node)])
        flow, step = self.flow, node.step
        metas = tuple([(flow.meta[n], *flow.wants.get(n, ())) for n in flow.touched(node)])
        return step.origin, step.attrs, node.form, metas, around

    def _try(self, node: Node, form: Form) -> list[tuple[Node, Form]]:
        """Change a node and let those around follow; returns who had which form before."""
        log = [(node, node.form)]
        self.flow.apply(node, form)
        changed = {node.index}
        waiting = deque(self._around(node))
        while waiting and len(log) < _REACH:
            other = waiting.popleft()
            if other.index in changed or not other.free or not self.flow.misfits(other):
                continue
            before = other.form
            self._respond(other)
            if other.form is not before:
                log.append((other, before))
                changed.add(other.index)
                waiting.extend(self._around(other))
        return log

    def _around(self, node: Node) -> Iterable[Node]:
        flow = self.flow
        for number in node.makes:
            yield from flow.readers.get(number, ())
        for read in node.reads:
            if read is not None:
                yield from flow.readers[read]
                if read in flow.maker:
                    yield flow.maker[read]

    def _respond(self, node: Node) -> None:
        """Give a node the form that is best if nothing else changes; of equals what fits most."""
        flow = self.flow
        present = node.form
        best, rank = present, (0.0, flow.misfits(node))
        change = 0.0
        for form in flow.forms(node):
            change += flow.apply(node, form)
            found = round(change, 12), flow.misfits(node)
            if found < rank:
                best, rank = form, found
            change += flow.apply(node, present)
        if best is not present:
            flow.apply(node, best)


class _ProgramWriter:
    """Writes a flow down as a program, with the boxings that it needs."""

    def __init__(self, flow: LayoutGraph) -> None:
        self.flow = flow
        self.numbers = flow.program.free_numbers()
        self.values: dict[int, Value] = {}
        self.laid: dict[object, Value] = {}
        self.steps: list[ProgramStep] = []

    def run(self) -> Program:
        program = self.flow.program
        for value in (*program.inputs, *(v.value for v in program.variables)):
            self.values[value.number] = value
        for node in self.flow.nodes:
            self._write(node)
        ends = {value.number: self._end(value) for value in program.wanted()}
        return program.substitute(self.steps, ends)

    def _write(self, node: Node) -> None:
        step, form = node.step, node.form
        if node.is_move:
            (number,) = node.reads
            assert number is not None
            self.values[node.makes[0]] = self._in(number, form.outputs[0], step)
            return
        inputs = tuple([
            value if number is None or meta is None else self._in(number, meta, step)
            for value, number, meta in zip(step.inputs, node.reads, form.inputs, strict=True)
        ])  # fmt: skip
        outputs = tuple([
            value if value.meta is meta else Value(value.number, meta, value.name)
            for value, meta in zip(step.outputs, form.outputs, strict=True)
        ])  # fmt: skip
        if step.input_metas == form.inputs and outputs == step.outputs:
            self.steps.append(replace(step, inputs=inputs))
        else:
            self.steps.append(relaid(step, inputs, outputs))
        self.values.update((value.number, value) for value in outputs)

    def _in(self, number: int, meta: Meta, near: ProgramStep) -> Value:
        """The value in this layout, boxed now if no step before has done it."""
        value = self.values[number]
        if value.meta is meta:
            return value
        key = value.number, meta, near.again, near.stage
        if key not in self.laid:
            made = self.laid[key] = Value(next(self.numbers), meta)
            self.steps.append(replace(box(value, made, near), asked=is_boxing(near)))
        return self.laid[key]

    def _end(self, value: Value) -> Value:
        near = self.flow.near(value)
        return value if near is None else self._in(self.flow.root(value), value.meta, near)
