"""Cost graph: the cost network of a program, whose states are layouts.

A node of the network is an op, with a state for each legal layout of its inputs and outputs; a
parameter or an input, with a state for each layout in which it may be stored; or the copies of a
value that several ops read, so that a boxing that they share is counted once. An edge holds the
seconds of boxing from what the one makes to what the other wants. What must not change has one
state. Ops and values of equal layers have the same tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from ...engine.meta import Meta
from ...engine.sbp import broadcast, split
from ..ir import Program, Value, Variable
from ..passes.layout_graph import Form, LayoutGraph, Node
from .cost_network import CostNetwork, Costs, States
from .layout_costs import LayoutCosts, local_elements

_PAIRS = 160  # states of copies up to which two copies of a value may be kept

Metas = tuple[Meta | None, ...]  # by state: the layout of one value


@dataclass(frozen=True)
class Freedom:
    """Which layouts may be chosen, besides those of ops.

    `parameters` are those with a gradient, by name. Their gradients, or with `gradients` all, come
    as they are made, and are boxed to the layout of the parameter when all micro-batches are done.
    """

    parameters: frozenset[str] = frozenset()
    gradients: bool = False
    inputs: bool = False
    outputs: bool = False


@dataclass(frozen=True)
class Training:
    """What surrounds the program of a micro-batch in a training step."""

    micro_batches: int = 1
    in_flight: int = 1  # micro-batches whose activations are held at a time
    kept: float = 8.0  # bytes that the optimizer keeps for each element of a parameter
    regather: bool = False  # whether split parameters are gathered in backward again


@dataclass(eq=False)
class _Maker:
    """What makes a value: a node of the network, and the value's layout in each of its states.

    `second` are the layouts of the copies that are in the states, too.
    """

    node: int
    metas: Metas
    second: Metas | None = None


@dataclass(eq=False)
class _Reader:
    node: int
    metas: Metas
    backward: bool = False


@dataclass(eq=False)
class _Tables:
    """Tables that equal layers share."""

    columns: dict[object, Metas] = field(default_factory=dict)
    costs: dict[object, Costs] = field(default_factory=dict)
    families: dict[object, tuple[States, ...]] = field(default_factory=dict)


class CostGraph:
    """A program's cost network, and what its states stand for."""

    def __init__(
        self,
        program: Program,
        costs: LayoutCosts,
        freedom: Freedom,
        training: Training,
    ) -> None:
        self.flow = flow = LayoutGraph(program)
        self.program = program
        self.costs = costs
        self.freedom = freedom
        self.training = training
        self.network = CostNetwork()
        self.forms: list[tuple[Form, ...]] = []  # of each node of the flow
        self.nodes: list[int] = []  # likewise, its number in the network
        self.given: dict[int, _Maker] = {}  # parameters, buffers and inputs, by number
        self._tables = _Tables()
        self._times: dict[tuple[Meta | None, Meta | None], float] = {}  # of boxings
        self._saved = self._saved_values()
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
        """The states of the layouts that the program has, with no copies beside the values."""
        return np.zeros(len(self.network.costs), np.intp)

    def apply(self, states: States) -> None:
        """Lay the nodes and values of the flow out as the states say."""
        for number, maker in self.given.items():
            meta = maker.metas[states[maker.node]]
            assert meta is not None
            self.flow.meta[number] = meta
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
            free = freedom.inputs and value.number not in fixed
            self._store(value, self._storages(value.meta) if free else (value.meta,))
        for variable in program.variables:
            value = variable.value
            if value.number not in trained:
                self._store(value, (value.meta,))
                continue
            free = value.name in freedom.parameters and value.number not in fixed
            self._store(value, self._storages(value.meta) if free else (value.meta,), variable)

    def _store(
        self, value: Value, metas: tuple[Meta, ...], variable: Variable | None = None
    ) -> None:
        """A node for a value that is given, with the copy that its readers share in its states."""
        first: Metas = metas
        second: Metas | None = None
        groups = [*self._readers.get(value.number, {}).values()]
        if len(metas) > 1 and len(groups) == 1 and len(groups[0]) > 1:
            wanted = dict.fromkeys([meta for reader in groups[0] for meta in reader.metas])
            pairs = [(a, b) for a in metas for b in dict.fromkeys((a, *wanted))]
            first = self._same(tuple([a for a, _ in pairs]))
            second = self._same(tuple([b for _, b in pairs]))
        first = self._same(first)
        kept = self.training.kept if variable is not None else None
        costs = self._storing(first, second or first, kept)
        memory = self._stored(first, second or first, kept)
        node = self.network.node(costs, memory, self._families(first, second or first))
        self.given[value.number] = _Maker(node, first, second)
        self._makers[value.number] = self.given[value.number]

    def _storing(self, first: Metas, second: Metas, kept: float | None) -> Costs:
        """Seconds of the update of a parameter, and of copies; `kept` is None for others."""

        def seconds() -> Costs:
            copies = self._extra(first, second, self.training.micro_batches)
            if kept is None:
                return copies
            return copies + [0.0 if m is None else self.costs.update(m, kept) for m in first]

        return self._table(("storing", id(first), id(second), kept), seconds)

    def _stored(self, first: Metas, second: Metas, kept: float | None) -> Costs:
        """Bytes of what is given, of the optimizer's state and of copies."""

        def nbytes() -> Costs:
            states = [kept * local_elements(m) if kept and m else 0.0 for m in first]
            copies = self._copied(first, second, 0 if self.training.regather else 1)
            return self._held(first) + states + copies

        return self._table(("stored", id(first), id(second), kept), nbytes)

    def _storages(self, meta: Meta) -> tuple[Meta, ...]:
        """The present layout first, then all broadcasts and splits into equal parts."""
        key = "storages", meta
        if key not in self._tables.columns:
            found = {meta: None}
            if meta.placement is not None:
                mesh = meta.placement.shape
                kinds = [broadcast, *(split(dim) for dim in range(meta.ndim))]
                choices = [
                    [meta.nd_sbp[axis]] if parts == 1 else kinds for axis, parts in enumerate(mesh)
                ]
                for nd_sbp in product(*choices):
                    shape = list(meta.shape)
                    for sbp, parts in zip(nd_sbp, mesh, strict=True):
                        if sbp.is_split:
                            shape[sbp.dim], rest = divmod(shape[sbp.dim], parts)
                            if rest or not shape[sbp.dim]:
                                break
                    else:
                        found[meta.like(nd_sbp=nd_sbp)] = None
            self._tables.columns[key] = tuple(found)
        return tuple([m for m in self._tables.columns[key] if m is not None])

    # Ops.

    def _add(self, node: Node) -> None:
        forms = self.flow.forms(node)
        backward = node.step.backward or node.step.again > 0
        costs = self._costs(node, forms)
        memory = self._memory(node, forms)
        number = self.network.node(costs, memory, self._families_of(forms))
        self.forms.append(forms)
        self.nodes.append(number)
        group = node.step.again, node.step.stage
        for place, read in enumerate(node.reads):
            if read is None:
                continue
            metas = self._column(forms, "wanted", place, node)
            if metas[0] is None:
                continue
            at: object = group
            if self.training.regather and read in self.given:
                at = group, backward
            readers = self._readers.setdefault(read, {}).setdefault(at, [])
            readers.append(_Reader(number, metas, backward))
        for place, made in enumerate(node.makes):
            self._makers[made] = _Maker(number, self._column(forms, "outputs", place, node))

    def _costs(self, node: Node, forms: tuple[Form, ...]) -> Costs:
        key = "forms", id(forms)
        if key not in self._tables.costs:
            seconds = [form.time for form in forms]
            if not node.is_move:
                seconds = [self.costs.op(node.step, each.inputs, each.outputs) for each in forms]
            self._tables.costs[key] = np.array(seconds) * self.training.micro_batches
        return self._tables.costs[key]

    def _memory(self, node: Node, forms: tuple[Form, ...]) -> Costs:
        """Bytes of what the node makes that is kept: activations for backward, and gradients."""
        places = tuple([i for i, n in enumerate(node.makes) if self._saved.get(n)])
        key = "kept", id(forms), tuple([(i, self._saved[node.makes[i]]) for i in places])
        if key not in self._tables.costs:
            nbytes = [
                sum(self._saved[node.makes[i]] * local_bytes(form.outputs[i]) for i in places)
                for form in forms
            ]
            self._tables.costs[key] = np.array(nbytes, float)
        return self._tables.costs[key]

    def _column(self, forms: tuple[Form, ...], side: str, place: int, node: Node) -> Metas:
        """Of each form, the layout of one input or output."""
        if side == "wanted" and node.is_move:
            side, place = "outputs", 0
        key = side, place, id(forms)
        if key not in self._tables.columns:
            many = [form.outputs if side == "outputs" else form.inputs for form in forms]
            self._tables.columns[key] = self._same(tuple([metas[place] for metas in many]))
        return self._tables.columns[key]

    def _same(self, metas: Metas) -> Metas:
        """The one tuple of these metas, whose identity stands for it."""
        return self._tables.columns.setdefault(("same", metas), metas)

    def _saved_values(self) -> dict[int, int]:
        """By number, how often what a value holds is kept: an activation, or a gradient."""
        source: dict[int, int] = {}
        made: set[int] = set()  # in forward
        found: dict[int, int] = {}
        for node in self.flow.nodes:
            later = node.step.backward or node.step.again > 0
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
        """What must exist in some layout when the program ends."""
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
            layouts = tuple([m and m.like(dtype=value.meta.dtype) for m in store.metas])
            table = self._boxing(gradient.metas, self._same(layouts), 1)
            self._edge(gradient.node, store.node, table)
        for value in wanted:
            near = flow.near(value)
            if near is not None:
                readers = self._readers.setdefault(flow.root(value), {})
                reader = _Reader(self._fixed, self._same((value.meta,)))
                readers.setdefault((near.again, near.stage), []).append(reader)

    def _join(self, number: int) -> None:
        """The edges between what makes a value and what reads it."""
        times = self.training.micro_batches
        for readers in self._readers[number].values():
            maker = self._makers[number]
            if len(readers) > 1 and maker.second is None and not _is_whole(maker.metas):
                maker = self._share(number, maker, readers)
            for reader in readers:
                table = self._boxing(maker.metas, reader.metas, times)
                if maker.second is not None:
                    copies = self._boxing(maker.second, reader.metas, times)
                    table = self._least(table, copies)
                self._edge(maker.node, reader.node, table)

    def _share(self, number: int, maker: _Maker, readers: list[_Reader]) -> _Maker:
        """A node for the copies that a value's readers share: one layout, or two where few."""
        wants = tuple(dict.fromkeys([reader.metas for reader in readers]))
        key = "copies", maker.metas, wants
        columns = self._tables.columns
        if key not in columns:
            made = list(dict.fromkeys(maker.metas))
            wanted = list(dict.fromkeys([m for metas in wants for m in metas]))
            pairs = [(a, a) for a in dict.fromkeys([*made, *wanted])]
            if len(made) * len(wanted) <= _PAIRS:
                pairs += [(a, b) for a in made for b in wanted if a is not b]
            columns[key] = self._same(tuple([a for a, _ in pairs]))
            columns["second", key] = self._same(tuple([b for _, b in pairs]))
        first, second = columns[key], columns["second", key]
        times, saved = self.training.micro_batches, self._saved.get(number, 0)
        extra = self._extra(first, second, times)
        kept = self._kept_copies(first, second, saved)
        hub = self.network.node(extra, kept, self._families(first, second))
        if saved:  # its copies are kept in place of the value
            memory, held = self.network.memory[maker.node], self._held(maker.metas)
            less = self._table(("less", id(memory), id(held)), lambda: memory - saved * held)
            self.network.memory[maker.node] = less
        self._edge(maker.node, hub, self._boxing(maker.metas, first, times))
        return _Maker(hub, first, second)

    def _kept_copies(self, first: Metas, second: Metas, times: int) -> Costs:
        """Bytes of both copies, by state."""
        return self._table(
            ("kept copies", id(first), id(second), times),
            lambda: times * self._held(first) + self._copied(first, second, times),
        )

    def _held(self, metas: Metas) -> Costs:
        """Bytes of a value, by state."""
        return self._table(
            ("held", id(metas)), lambda: [0 if m is None else local_bytes(m) for m in metas]
        )

    def _copied(self, first: Metas, second: Metas, times: int) -> Costs:
        """Bytes of second copies, by state."""

        def nbytes() -> list[float]:
            pairs = zip(first, second, strict=True)
            return [0 if a is b or b is None else times * local_bytes(b) for a, b in pairs]

        return self._table(("copied", id(first), id(second), times), nbytes)

    def _extra(self, first: Metas, second: Metas, times: int) -> Costs:
        """Seconds of making second copies, by state."""

        def seconds() -> list[float]:
            return [times * self._time(a, b) for a, b in zip(first, second, strict=True)]

        return self._table(("extra", id(first), id(second), times), seconds)

    def _families(self, *columns: Metas) -> tuple[States, ...]:
        """For each axis, numbers of states that are equal where they differ along it alone."""
        key = "families", *map(id, columns)
        if key not in self._tables.families:
            self._tables.families[key] = _families(list(zip(*columns, strict=True)))
        return self._tables.families[key]

    def _families_of(self, forms: tuple[Form, ...]) -> tuple[States, ...]:
        key = "forms", id(forms)
        if key not in self._tables.families:
            states = [(*form.inputs, *form.outputs) for form in forms]
            self._tables.families[key] = _families(states)
        return self._tables.families[key]

    def _least(self, a: Costs, b: Costs) -> Costs:
        return self._table(("least", id(a), id(b)), lambda: np.minimum(a, b))

    def _table(self, key: object, make: Callable[[], Sequence[float] | Costs]) -> Costs:
        """A table that is made once, so that equal layers have the same."""
        found = self._tables.costs.get(key)
        if found is None:
            found = self._tables.costs[key] = np.array(make(), float)
        return found

    def _boxing(self, made: Metas, wanted: Metas, times: int) -> Costs:
        """Seconds by the states of what makes a value (rows) and of what wants it."""
        key = "boxing", id(made), id(wanted), times
        if key not in self._tables.costs:
            starts, rows = _distinct(made)
            ends, columns = _distinct(wanted)
            table = np.array([[self._time(a, b) for b in ends] for a in starts])
            self._tables.costs[key] = times * table[rows][:, columns]
        return self._tables.costs[key]

    def _time(self, src: Meta | None, dst: Meta | None) -> float:
        key = src, dst
        found = self._times.get(key)
        if found is None:
            assert src is not None and dst is not None
            found = self._times[key] = 0.0 if src is dst else self.costs.boxing(src, dst)
        return found

    def _edge(self, a: int, b: int, costs: Costs) -> None:
        if a != b:
            self.network.edge(a, b, costs)


def _families(states: Sequence[Sequence[Meta | None]]) -> tuple[States, ...]:
    """For each axis of the mesh, numbers of states: equal for those that differ along it alone."""
    metas = [meta for meta in states[0] if meta is not None and meta.placement is not None]
    axes = len(metas[0].nd_sbp) if metas else 0
    found = []
    for axis in range(axes):
        numbers: dict[object, int] = {}
        rest = [
            tuple([m and (*m.nd_sbp[:axis], *m.nd_sbp[axis + 1 :]) for m in metas])
            for metas in states
        ]
        found.append(np.array([numbers.setdefault(key, len(numbers)) for key in rest], np.intp))
    return tuple(found)


def _is_whole(metas: Metas) -> bool:
    """Whether a value is whole on every rank for sure, so that no copy costs anything."""
    (meta, *others) = metas
    return not others and (meta is None or all(sbp.is_broadcast for sbp in meta.nd_sbp))


def local_bytes(meta: Meta) -> int:
    """Bytes of the largest shard."""
    return local_elements(meta) * meta.dtype.itemsize


def _distinct(metas: Metas) -> tuple[list[Meta | None], list[int]]:
    places = {meta: place for place, meta in enumerate(dict.fromkeys(metas))}
    return list(places), [places[meta] for meta in metas]
