"""Cost graph: the cost network of a program, whose states are layouts.

A node of the network is an op, with a state for each legal layout of its inputs and outputs; a
parameter or an input, with a state for each layout in which it may be stored; or the copies of a
value that several ops read, so that a boxing that they share is counted once. An edge holds the
seconds of boxing from what the one makes to what the other wants. What must not change has one
state. Ops and values of equal layers have the same tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...engine.meta import Meta
from ..ir import Program, Value
from ..passes.layout_graph import Form, LayoutGraph, Node
from .cost_network import CostNetwork, Costs, States
from .layout_costs import LayoutCosts, local_elements
from .layout_tables import Column, LayoutTables

_PAIRS = 160  # states of copies up to which two copies of a value may be kept


@dataclass(frozen=True)
class Freedom:
    """The layouts that may be chosen besides those of ops; with `axis`, only along that axis.

    `parameters` are those with a gradient, by name. Their gradients, or with `gradients` all, come
    as they are made, and are boxed to the layout of the parameter when all micro-batches are done.
    """

    parameters: frozenset[str] = frozenset()
    gradients: bool = False
    inputs: bool = False
    outputs: bool = False
    axis: int | None = None


@dataclass(frozen=True)
class Training:
    """The training step around the program of a micro-batch."""

    micro_batches: int = 1
    in_flight: int = 1  # micro-batches whose activations are held at a time
    kept: float = 8.0  # bytes that the optimizer keeps for each element of a parameter
    regather: bool = False  # whether split parameters are gathered in backward again


@dataclass(frozen=True, eq=False)
class _Maker:
    """The producer of a value: a node of the network, and the value's layout in each of its states.

    `second` are the layouts of copies that are in the states, too.
    """

    node: int
    column: Column
    second: Column | None = None


@dataclass(frozen=True, eq=False)
class _Reader:
    """A reader of a value: a node of the network, and the layout required by each of its states."""

    node: int
    column: Column


class CostGraph:
    """A program's cost network, and the layouts that its states represent."""

    def __init__(
        self,
        program: Program,
        costs: LayoutCosts,
        freedom: Freedom,
        training: Training,
    ) -> None:
        self.flow = flow = LayoutGraph(program, freedom.axis)
        self.program = program
        self.costs = costs
        self.freedom = freedom
        self.training = training
        self.network = CostNetwork()
        self.forms: list[tuple[Form, ...]] = []  # of each node of the flow
        self.nodes: list[int] = []  # likewise, its number in the network
        self.given: dict[int, _Maker] = {}  # parameters, buffers and inputs, by number
        self.tables = LayoutTables(costs)
        self._columns: dict[object, Column] = {}
        self._saved = self._saved_values()
        self._variables = {variable.value.number for variable in program.variables}
        self._makers: dict[int, _Maker] = {}
        self._readers: dict[int, dict[object, list[_Reader]]] = {}
        self._fixed = self.network.node(np.zeros(1))
        for node in flow.nodes:
            self._add(node)
        self._give()
        self._end()
        for number in self._readers:
            self._join(number)

    def start(self) -> States:
        """The states of the layouts that the program has, without copies of the values."""
        return np.zeros(len(self.network.costs), np.intp)

    def stored(self, states: States) -> dict[int, Meta]:
        """By number, the layouts of parameters, buffers and inputs."""
        found = {number: maker.column[states[maker.node]] for number, maker in self.given.items()}
        return {number: meta for number, meta in found.items() if meta is not None}

    def apply(self, states: States) -> None:
        """Set the layouts of nodes and values to those of the states."""
        self.flow.meta.update(self.stored(states))
        for node, forms, number in zip(self.flow.nodes, self.forms, self.nodes, strict=True):
            form = forms[states[number]]
            if (form.inputs, form.outputs) != (node.form.inputs, node.form.outputs):
                self.flow.lay(node, form)

    # What is given.

    def _give(self) -> None:
        program, freedom = self.program, self.freedom
        fixed = {value.number for value in program.wanted()}
        fixed |= {variable.value.number for variable, _ in program.assigns}
        trained = {variable.value.number for variable, _ in program.gradients}
        for value in program.inputs:
            self._store(value, freedom.inputs and value.number not in fixed)
        for variable in program.variables:
            value = variable.value
            free = value.name in freedom.parameters and value.number not in fixed
            is_trained = value.number in trained
            self._store(value, free and is_trained, self.training.kept if is_trained else None)

    def _store(self, value: Value, free: bool, kept: float | None = None) -> None:
        """A node for a given value, whose states include the copy that its readers share.

        `kept` are the bytes that an optimizer keeps for each element of it; None without one.
        """
        storages = self.tables.storages(value.meta, self.freedom.axis) if free else (value.meta,)
        first, second = self.tables.column(storages), None
        groups = [*self._readers.get(value.number, {}).values()]
        if len(storages) > 1 and len(groups) == 1 and len(groups[0]) > 1:
            wanted = dict.fromkeys([meta for reader in groups[0] for meta in reader.column])
            pairs = [(a, b) for a in storages for b in dict.fromkeys((a, *wanted))]
            first = self.tables.column([a for a, _ in pairs])
            second = self.tables.column([b for _, b in pairs])
        copies = first if second is None else second
        costs = self._storing(first, copies, kept)
        memory = self._stored(first, copies, kept)
        node = self.network.node(costs, memory, self.tables.families(first, copies))
        self.given[value.number] = self._makers[value.number] = _Maker(node, first, second)

    def _storing(self, first: Column, second: Column, kept: float | None) -> Costs:
        """Seconds of an optimizer's update, and of copies."""

        def seconds() -> Costs:
            copies = self.tables.copying(first, second, self.training.micro_batches)
            if kept is None:
                return copies
            return copies + [0.0 if m is None else self.costs.update(m, kept) for m in first]

        return self.tables.table(("storing", id(first), id(second), kept), seconds)

    def _stored(self, first: Column, second: Column, kept: float | None) -> Costs:
        """Bytes of given values, of the optimizer's state and of copies."""

        def nbytes() -> Costs:
            states = [kept * local_elements(m) if kept and m else 0.0 for m in first]
            times = 0 if self.training.regather else 1
            return self.tables.held(first) + states + self.tables.held_twice(first, second, times)

        return self.tables.table(("stored", id(first), id(second), kept), nbytes)

    # Ops.

    def _add(self, node: Node) -> None:
        step, forms = node.step, self.flow.forms(node)
        made = [self._column(forms, "outputs", place) for place in range(len(node.makes))]
        wanted = [
            self._column(forms, *("outputs", 0) if node.is_move else ("inputs", place))
            for place in range(len(node.reads))
        ]
        families = self.tables.families(*wanted, *made)
        memory = self._memory(node, made, len(forms))
        number = self.network.node(self._costs(node, forms), memory, families)
        self.forms.append(forms)
        self.nodes.append(number)
        for read, column in zip(node.reads, wanted, strict=True):
            if read is not None and column[0] is not None:
                again = self.training.regather and read in self._variables
                group = step.recomputation, step.stage, again and _is_later(node)
                self._readers.setdefault(read, {}).setdefault(group, []).append(
                    _Reader(number, column)
                )
        self._makers |= {
            value: _Maker(number, column) for value, column in zip(node.makes, made, strict=True)
        }

    def _costs(self, node: Node, forms: tuple[Form, ...]) -> Costs:
        def seconds() -> Costs:
            if node.is_move:
                return np.zeros(len(forms))
            each = [self.costs.op(node.step, form.inputs, form.outputs) for form in forms]
            return np.array(each) * self.training.micro_batches

        return self.tables.table(("forms", id(forms)), seconds)

    def _memory(self, node: Node, made: list[Column], states: int) -> Costs:
        """Bytes of the node's results that are kept: activations for backward, and gradients."""
        kept = [(self._saved.get(n, 0), column) for n, column in zip(node.makes, made, strict=True)]

        def nbytes() -> Costs:
            return sum([times * self.tables.held(c) for times, c in kept], np.zeros(states))

        key = "kept", states, *((times, id(column)) for times, column in kept if times)
        return self.tables.table(key, nbytes)

    def _column(self, forms: tuple[Form, ...], side: str, place: int) -> Column:
        """The layout of one input or output in each form."""
        key = id(forms), side, place
        if key not in self._columns:
            metas = [getattr(form, side)[place] for form in forms]
            self._columns[key] = self.tables.column(metas)
        return self._columns[key]

    def _saved_values(self) -> dict[int, int]:
        """By number, how often what a value holds is kept: an activation, or a gradient."""
        source: dict[int, int] = {}
        made: set[int] = set()  # in forward
        found: dict[int, int] = {}
        for node in self.flow.nodes:
            later = _is_later(node)
            for read in node.reads:
                root = read if read is None else source.get(read, read)
                if later and root is not None and root in made:
                    found[root] = self.training.in_flight
            if node.step.aliases and node.reads and node.reads[0] is not None:
                read = node.reads[0]
                source.update((number, source.get(read, read)) for number in node.makes)
            elif not later:
                made.update(node.makes)
        for _, gradient in self.program.gradients:
            found.setdefault(self.flow.root(gradient), 1)
        return found

    # What is wanted.

    def _end(self) -> None:
        """The values that must exist in some layout when the program ends."""
        program, flow = self.program, self.flow
        wanted = [value for _, value in program.assigns]
        if not self.freedom.outputs:
            wanted += program.outputs
        for variable, value in program.gradients:
            name = variable.value.name
            if name not in self.freedom.parameters and not self.freedom.gradients:
                wanted.append(value)
                continue
            gradient = self._makers[flow.root(value)]
            store = self.given[variable.value.number]
            dtype = value.meta.dtype
            layouts = self.tables.column([m and m.like(dtype=dtype) for m in store.column])
            table = self.tables.boxing(gradient.column, layouts)
            self.network.edge(gradient.node, store.node, table)
        for value in wanted:
            near = flow.near(value)
            if near is not None:
                readers = self._readers.setdefault(flow.root(value), {})
                reader = _Reader(self._fixed, self.tables.column([value.meta]))
                readers.setdefault((near.recomputation, near.stage, False), []).append(reader)

    def _join(self, number: int) -> None:
        """Add the edges between the producer of a value and its readers."""
        tables, times = self.tables, self.training.micro_batches
        saved = self._saved.get(number, 0)
        for readers in self._readers[number].values():
            maker = self._makers[number]
            if len(readers) > 1 and maker.second is None and not _is_whole(maker.column):
                maker = self._share(maker, readers, saved)
                saved = 0
            for reader in readers:
                if maker.second is None:
                    table = tables.boxing(maker.column, reader.column, times)
                else:
                    table = tables.from_copies(maker.column, maker.second, reader.column, times)
                self.network.edge(maker.node, reader.node, table)

    def _share(self, maker: _Maker, readers: list[_Reader], saved: int) -> _Maker:
        """A node for the copies that a value's readers share: one layout, or two where few."""
        tables, times = self.tables, self.training.micro_batches
        first, second = self._copies(maker, readers)
        copying = tables.copying(first, second, times)
        memory = tables.table(
            ("both", id(first), id(second), saved),
            lambda: saved * tables.held(first) + tables.held_twice(first, second, saved),
        )
        hub = self.network.node(copying, memory, tables.families(first, second))
        if saved:  # the copies are kept in place of the value
            kept, held = self.network.memory[maker.node], tables.held(maker.column)
            key = "less", id(kept), id(held), saved
            self.network.memory[maker.node] = tables.table(key, lambda: kept - saved * held)
        self.network.edge(maker.node, hub, tables.boxing(maker.column, first, times))
        return _Maker(hub, first, second)

    def _copies(self, maker: _Maker, readers: list[_Reader]) -> tuple[Column, Column]:
        """The layouts in which copies may be: the present one first."""
        wants = tuple(dict.fromkeys([id(reader.column) for reader in readers]))
        first, second = (id(maker.column), wants, 1), (id(maker.column), wants, 2)
        if first not in self._columns:
            made = list(dict.fromkeys(maker.column))
            wanted = list(dict.fromkeys([m for reader in readers for m in reader.column]))
            pairs = [(a, a) for a in dict.fromkeys([*made, *wanted])]
            if len(made) * len(wanted) <= _PAIRS:
                pairs += [(a, b) for a in made for b in wanted if a is not b]
            self._columns[first] = self.tables.column([a for a, _ in pairs])
            self._columns[second] = self.tables.column([b for _, b in pairs])
        return self._columns[first], self._columns[second]


def _is_later(node: Node) -> bool:
    """Whether a node is part of backward, or of what is computed again for it."""
    return node.step.backward or node.step.recomputation > 0


def _is_whole(column: Column) -> bool:
    """Whether a value is always whole on every rank, so that copies are free."""
    (meta, *others) = column
    return not others and (meta is None or all(sbp.is_broadcast for sbp in meta.nd_sbp))
