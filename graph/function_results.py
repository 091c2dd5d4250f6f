"""Function results: where each tensor that a captured function returned or changed comes from.

A result is an argument or a tensor from outside itself, or a value that the program computes. It
may be a view of one of these, so that a write to one of them changes the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CoroutineType, FunctionType, GeneratorType
from typing import NamedTuple, TypeAlias

from ..engine.autograd_tape import Edge, Leaf
from ..engine.tensor import Tensor
from ..engine.views import ViewStep, base_of, link, stand_in
from ..errors import OnefoldRuntimeError, OnefoldTypeError, kind_of
from .changed_inputs import has_relative, root_of
from .function_capture import FunctionCapture
from .ir import Value, value_in
from .pytree import tree_map, tree_values

# A tensor of a call: the index of an argument, or a tensor that the function knows besides.
At: TypeAlias = int | Tensor


@dataclass(frozen=True, slots=True)
class Made:
    """An output of the program."""

    index: int


Place: TypeAlias = At | Made


class Link(NamedTuple):
    """An output that is a view, by a step, of a tensor."""

    output: int
    base: Place
    step: ViewStep


class Change(NamedTuple):
    """A tensor that the function changes in place, and the output that is its new value."""

    at: At
    made: int
    recorded: bool  # whether on the tape, too


class End(NamedTuple):
    """A computed output with a gradient: its number, value, and place on the captured tape."""

    output: int
    value: Value
    node: Edge


class Target(NamedTuple):
    """A tensor that gets a gradient, and its place on the captured tape."""

    at: At
    node: Edge


class FunctionResults:
    """What a function returned and changed, analyzed at the end of its capture."""

    def __init__(
        self, capture: FunctionCapture, arguments: Sequence[Tensor], returned: object
    ) -> None:
        """`arguments` are the placeholders. Raises OnefoldRuntimeError for a new leaf."""
        self._capture = capture
        self.values: list[Value] = []  # the outputs of the program
        self.ends: list[End] = []
        self.links: list[Link] = []
        self._indices: dict[int, int] = {}  # of outputs, by the identities of captured tensors
        self._known: dict[int, At] = {
            **capture.outside,
            **{id(x): index for index, x in enumerate(arguments)},
        }
        self._outside = list(capture.outside.values())
        self._tensors = [*arguments, *self._outside]  # those that are known
        self.targets = self._find_targets()
        self._ends_of_tape = {id(target.node) for target in self.targets}
        self.changes = self._find_changes(arguments)
        leaves: dict[int, Tensor] = {}
        tree_map(returned, lambda x: leaves.setdefault(id(x), x))
        self._roots = Counter(id(root_of(x)) for x in leaves.values())
        self.places = {key: self._place(x) for key, x in leaves.items()}
        tree_values(returned, self._check_value)
        self.returned = returned
        self._held = leaves  # so that no other tensor has their identities

    def _find_targets(self) -> list[Target]:
        found: dict[int, Target] = {}
        for index, edge in enumerate(self._capture.argument_nodes):
            if edge is not None:
                found[id(edge)] = Target(index, edge)
        for tensor in self._capture.outside.values():
            edge = self._capture.node_before(tensor)
            if edge is not None:
                found.setdefault(id(edge), Target(tensor, edge))
        return list(found.values())

    def _find_changes(self, arguments: Sequence[Tensor]) -> list[Change]:
        capture, found = self._capture, []
        for index, x in enumerate(arguments):
            if capture.value_of(x) is not capture.program.inputs[index]:
                recorded = x.node is not capture.argument_nodes[index]
                found.append(Change(index, self._output(x, recorded), recorded))
        for tensor in capture.outside.values():
            if capture.value_of(tensor) is capture.values[id(tensor)]:
                continue
            if not self._follows(tensor):
                recorded = tensor.node is not capture.node_before(tensor)
                found.append(Change(tensor, self._output(tensor, recorded), recorded))
        return found

    def _follows(self, tensor: Tensor) -> bool:
        """Whether the tensor changes when a base of it, which changes too, does."""
        base = base_of(tensor)
        while base is not None:
            if id(base) in self._capture.outside:
                return True
            base = base_of(base)
        return False

    def _output(self, x: Tensor, recorded: bool = True) -> int:
        """The index of a captured tensor among the outputs of the program."""
        index = self._indices.get(id(x))
        if index is None:
            index = self._indices[id(x)] = len(self.values)
            value = self._capture.value_of(x)
            self.values.append(value)
            node = x.node if recorded else None
            if node is not None:
                if isinstance(node, Leaf) and id(node) not in self._ends_of_tape:
                    raise OnefoldRuntimeError(
                        "a compiled function returned a leaf that it made and that requires grad; "
                        "make it outside and pass it, or return it without requires_grad"
                    )
                self.ends.append(End(index, value, node))
        return index

    def _place(self, x: Tensor) -> Place:
        known = self._known.get(id(x))
        if known is not None:
            return known
        if value_in(x) is None:
            return x
        chain = [x]
        while (base := base_of(chain[-1])) is not None and not chain[-1]._step.reads_others:
            above = self._known.get(id(base), self._stood_in(base))
            if above is not None:
                return self._linked(chain, above)
            chain.append(base)
        if self._roots[id(chain[-1])] > 1:
            return self._linked(chain[:-1], Made(self._output(chain[-1])))
        return Made(self._output(x))

    def _check_value(self, value: object) -> None:
        """Raise OnefoldTypeError for a returned object that holds what the program computes."""

        def refuse(x: Tensor | None = None) -> None:
            if x is None or (id(x) not in self._known and value_in(x) is not None):
                raise OnefoldTypeError(
                    "a compiled function returned an object that computes or holds tensors, "
                    f"{kind_of(value)}, but a program gives tensors only, alone or in lists, "
                    "tuples, dicts and dataclasses; return those, and make the object outside"
                )

        if isinstance(value, (GeneratorType, CoroutineType)):
            refuse()
        held: Iterable[object] = getattr(value, "__dict__", {}).values()
        if isinstance(value, FunctionType):
            held = [cell.cell_contents for cell in value.__closure__ or ()]
        elif isinstance(value, (set, frozenset)):
            held = value
        for each in held:
            tree_map(each, refuse)

    def _linked(self, chain: list[Tensor], base: Place) -> Place:
        """The place of the first tensor in a chain of views, whose last is a view of `base`."""
        for x in reversed(chain):
            if id(x) not in self._indices:
                self.links.append(Link(self._output(x), base, x._step))
            base = Made(self._indices[id(x)])
        return base

    def _stood_in(self, base: Tensor) -> At | None:
        """The tensor of which `base` is the value without history, if it is known."""
        for x in self._tensors:
            if base_of(x) is base and x._step.detaches:
                return self._known[id(x)]
        return None

    def rename(self, indices: Mapping[int, int]) -> None:
        """Make tensors from outside, by their ids, arguments with these indices."""

        def new(place: Place) -> Place:
            return indices.get(id(place), place) if isinstance(place, Tensor) else place

        def at(place: At) -> At:
            return indices.get(id(place), place) if isinstance(place, Tensor) else place

        self.places = {key: new(place) for key, place in self.places.items()}
        self.links = [link._replace(base=new(link.base)) for link in self.links]
        self.targets = [target._replace(at=at(target.at)) for target in self.targets]

    # In a call.

    def check_families(self, inputs: Sequence[Tensor]) -> None:
        """Raise OnefoldRuntimeError if a change of one tensor would also change another one.

        The program does not know which arguments are views of each other.
        """
        for change in self.changes:
            others = inputs if isinstance(change.at, Tensor) else [*inputs, *self._outside]
            if has_relative(tensor_at(change.at, inputs), others):
                raise OnefoldRuntimeError(
                    "a compiled function changes a tensor in place that is a view of another "
                    "argument, or its base; call the function itself, or pass a clone()"
                )

    def arrange(self, inputs: Sequence[Tensor], made: Sequence[Tensor]) -> object:
        """The result of a call, from its arguments and the outputs of the program."""
        for output, place, step in self.links:
            base = tensor_at(place, inputs, made)
            link(made[output], stand_in(base) if step.detaches else base, step)
        if type(self.returned) is Tensor:
            (place,) = self.places.values()
            return tensor_at(place, inputs, made)
        found = {key: tensor_at(place, inputs, made) for key, place in self.places.items()}
        return tree_map(self.returned, lambda x: found[id(x)])


def tensor_at(place: Place, inputs: Sequence[Tensor], made: Sequence[Tensor] = ()) -> Tensor:
    """The tensor at a place of a call."""
    if isinstance(place, Made):
        return made[place.index]
    return inputs[place] if isinstance(place, int) else place
