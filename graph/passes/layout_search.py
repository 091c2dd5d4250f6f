"""Layout search: chooses the layouts of all ops together, where eager decides one by one."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING

from ... import graph as on_demand
from ...engine.meta import Meta
from ..ir import Program, ProgramStep, Value, Variable
from .dead_code import eliminate_dead
from .layout_graph import LayoutGraph, Node, form_of
from .pass_utils import box, is_boxing, relaid, time

if TYPE_CHECKING:
    from ..layouts import CostGraph, Solver

_LEAST = 1e-9  # seconds, relative to the whole program: a smaller gain is rounding


def search_layouts(
    program: Program,
    parameters: AbstractSet[str] = frozenset(),
    ignore_asked: bool = False,
    micro_batches: int = 1,
    axis: int | None = None,
) -> Program:
    """The program with the layouts of ops that take the least modeled time.

    Inputs, variables, outputs, assigns, gradients and boxings that the program asked for keep their
    layouts, but gradients between placements, which come as they are produced. Of the `parameters`
    with these names, which are stored as is best, and of their gradients the layouts are chosen,
    too; with `ignore_asked` also of what the program asked for between ops of one placement. With
    `axis` they are chosen along that axis of the meshes alone. The result never takes longer than
    `program`, which is returned as it is if nothing better was found.
    """
    asked = _unasked(program) if ignore_asked else program
    layouts = on_demand.layouts
    freedom, training = (
        layouts.Freedom(frozenset(parameters), axis=axis),
        layouts.Training(micro_batches),
    )
    graph: CostGraph = layouts.CostGraph(asked, layouts.ModeledCosts(), freedom, training)
    solver: Solver = layouts.Solver(graph.network)
    start = graph.start()
    before = graph.network.total(start)
    found = solver.solve(start=start)
    if found.cost >= before * (1 - _LEAST):
        return program
    graph.apply(found.states)
    chosen = {
        variable.value.number
        for variable, _ in program.gradients
        if variable.value.name in parameters
    }
    made = eliminate_dead(_ProgramWriter(graph.flow, chosen).run())
    if chosen:
        return made
    before, after = modeled_time(program), modeled_time(made)
    return made if after < before * (1 - _LEAST) else program


def _unasked(program: Program) -> Program:
    """The program in which no boxing on one placement was asked for."""
    steps = [
        replace(step, asked=False)
        if is_boxing(step) and step.source.meta.placement is step.outputs[0].meta.placement
        else step
        for step in program.steps
    ]
    return replace(program, steps=steps)


def modeled_time(program: Program) -> float:
    """Modeled seconds of all boxing and ops of a program, one after the other."""
    total = 0.0
    for step in program.steps:
        if is_boxing(step):
            total += time(step.source.meta, step.outputs[0].meta)
        elif step.outputs:
            total += form_of(step, step.input_metas, step.output_metas).time
    return total


class _ProgramWriter:
    """Writes a layout graph as a program, with the boxings that it needs."""

    def __init__(self, flow: LayoutGraph, chosen: AbstractSet[int] = frozenset()) -> None:
        self.flow = flow
        self.chosen = chosen  # the numbers of the variables whose layouts were chosen
        self.numbers = flow.program.free_numbers()
        self.values: dict[int, Value] = {}
        self.laid: dict[object, Value] = {}
        self.steps: list[ProgramStep] = []

    def run(self) -> Program:
        program = self.flow.program
        variables = [self._variable(variable) for variable in program.variables]
        for value in (*program.inputs, *(v.value for v in variables)):
            self.values[value.number] = value
        for node in self.flow.nodes:
            self._write(node)
        assigned = [value for _, value in program.assigns]
        ends = {value.number: self._end(value) for value in (*program.outputs, *assigned)}
        by_number = {variable.value.number: variable for variable in variables}
        gradients = [
            (by_number[variable.value.number], self._gradient(variable, value))
            for variable, value in program.gradients
        ]
        assigns = [(by_number[v.value.number], value) for v, value in program.assigns]
        program = replace(program, variables=variables, assigns=assigns, gradients=gradients)
        return program.substitute(self.steps, ends)

    def _variable(self, variable: Variable) -> Variable:
        """The variable as it is stored."""
        value, meta = variable.value, self.flow.meta[variable.value.number]
        return variable if meta is value.meta else replace(variable, value=value.laid(meta))

    def _gradient(self, variable: Variable, value: Value) -> Value:
        """A gradient in the wanted layout; as it was made, if the parameter's layout was chosen."""
        if variable.value.number in self.chosen:
            return self.values[self.flow.root(value)]
        return self._end(value)

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
        """The value in this layout, boxed here unless an earlier step has done so."""
        value = self.values[number]
        if value.meta is meta:
            return value
        key = value.number, meta, near.recomputation, near.stage
        if key not in self.laid:
            made = self.laid[key] = Value(next(self.numbers), meta)
            self.steps.append(replace(box(value, made, near), asked=is_boxing(near)))
        return self.laid[key]

    def _end(self, value: Value) -> Value:
        near = self.flow.near(value)
        return value if near is None else self._in(self.flow.root(value), value.meta, near)
