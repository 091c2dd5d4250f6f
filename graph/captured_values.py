"""Captured values: what tensors stand for while a program is captured, and their changes.

In-place changes of tensors from outside are recorded. The program assigns them at its end, and they
are undone when the capture ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Generic, NamedTuple, TypeVar

import torch

from ..engine import interpreter
from ..engine.autograd_tape import Edge
from ..engine.meta import Meta
from ..engine.tensor import Shards, Tensor
from ..engine.views import base_of
from .ir import Clipping, Program, Value, Variable, captured, value_in

R = TypeVar("R")


class _Absent(tuple[torch.Tensor, ...]):
    """The empty shards of a tensor on a process outside its placement, distinct for each tensor."""

    __slots__ = ()

    @classmethod
    def of(cls, shards: Shards) -> Shards:
        return shards if type(shards) is cls else cls()


class Content(NamedTuple):
    """The state of a tensor at a point of the program."""

    tensor: Tensor
    shards: Shards
    shared: bool
    version: int
    node: Edge | None

    @classmethod
    def of(cls, tensor: Tensor) -> Content:
        return cls(tensor, tensor.shards, tensor.shared, tensor.version, tensor.node)


class Mutations:
    """The tensors from outside that were changed, with their state before the capture."""

    def __init__(self) -> None:
        self._before: dict[int, Content] = {}  # by the tensors' identities

    def note(self, tensor: Tensor) -> None:
        """Note that the tensor is about to change."""
        self._before.setdefault(id(tensor), Content.of(tensor))

    def tensors(self) -> list[Tensor]:
        return [content.tensor for content in self._before.values()]

    def shards_before(self, tensor: Tensor) -> Shards:
        """The shards that the tensor had before the capture."""
        found = self._before.get(id(tensor))
        return tensor.shards if found is None else found.shards

    def node_before(self, tensor: Tensor) -> Edge | None:
        """The place on the tape that the tensor had before the capture."""
        found = self._before.get(id(tensor))
        return tensor.node if found is None else found.node

    def now(self) -> dict[int, Content]:
        """The state of the changed tensors at this point of the program."""
        return {id(tensor): Content.of(tensor) for tensor in self.tensors()}

    def put_back(self, contents: dict[int, Content]) -> None:
        """Restore all tensors from outside to `contents`, which `now` returned."""
        for tensor, shards, shared, version, node in (self._before | contents).values():
            tensor.shards, tensor.shared, tensor.version = shards, shared, version
            tensor.node = node

    def undo(self) -> None:
        """Give every tensor from outside back what it had before the capture."""
        self.put_back({})
        self._before.clear()


class Repeatable(Generic[R]):
    """Runs a function again from its initial state, and undoes its changes."""

    def __init__(
        self,
        changes: Mutations,
        function: Callable[..., R],
        block: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._mutations = changes
        self._function = function
        self._block = block  # in which it runs
        self._found = changes.now()
        self._ran = False

    def __call__(self, *args: object, **kwargs: object) -> R:
        with self._block():
            if not self._ran:
                self._ran = True
                return self._function(*args, **kwargs)
            now = self._mutations.now()
            self._mutations.put_back(self._found)
            try:
                return self._function(*args, **kwargs)
            finally:
                self._mutations.put_back(now)


class CapturedValues(interpreter.Interpreter):
    """Keeps the values of a program that is being captured.

    A captured tensor has a Value in place of its shards. Tensors from outside become
    variables of the program; what the program does to them in place becomes its assigns.
    """

    def __init__(self, named: Mapping[str, Tensor], numbers: int) -> None:
        self.program = Program()
        self._numbers = numbers  # of the values that there are
        self._named = {id(tensor): name for name, tensor in named.items()}
        self._variables: dict[int, Variable] = {}  # by the identity of the shards
        self.variable_numbers: set[int] = set()  # of their values
        self.mutations = Mutations()
        self._token = object()  # tells its values from those of other captures
        for tensor in named.values():
            self._variable(tensor)

    @property
    def captures(self) -> bool:
        return True

    def input(self, meta: Meta, name: str) -> Tensor:
        """A captured tensor for an input of the program."""
        value = self._value(meta, name)
        self.program.inputs.append(value)
        return captured(value)

    def value_of(self, tensor: Tensor) -> Value:
        """The value of a tensor at this point of the program."""
        value = value_in(tensor)
        if value is None:
            return self._variable(tensor).value
        if type(value.owner) is Clipping:
            raise value.owner.used()
        if value.owner is not self._token:
            raise value.stray()
        return value

    def adopt(self, value: Value) -> Tensor:
        """A captured tensor for a value of the program that this one continues."""
        value.owner = self._token
        return captured(value)

    def continued(self, value: Value) -> Value:
        """A new value like one of the program that this one continues."""
        made = self._value(value.meta)
        made.scope, made.line = value.scope, value.line
        return made

    def _value(self, meta: Meta, name: str = "") -> Value:
        self._numbers += 1
        return Value(self._numbers, meta, name, self._token)

    # Tensors from outside.

    def _variable(self, tensor: Tensor) -> Variable:
        # By its shards, which a detached alias has too.
        if not tensor.shards:
            tensor.shards = _Absent.of(tensor.shards)
        found = self._variables.get(id(tensor.shards))
        if found is None:
            name = self._named.get(id(tensor), f"outside.{len(self._variables)}")
            found = Variable(self._value(tensor.meta, name), tensor)
            self._variables[id(tensor.shards)] = found
            self.program.variables.append(found)
            self.variable_numbers.add(found.value.number)
        return found

    def _variable_before(self, tensor: Tensor) -> Variable:
        """The variable that the tensor was before the program changed it."""
        return self._variables[id(self.mutations.shards_before(tensor))]

    def before_sharing(self, tensor: Tensor) -> None:
        if value_in(tensor) is None:
            self._variable(tensor)

    def before_change(self, tensor: Tensor) -> None:
        if value_in(tensor) is None:
            self._variable(tensor)
            self.mutations.note(tensor)

    def name_of(self, tensor: Tensor) -> str:
        """The name of a tensor from outside in the program."""
        return self._variable_before(tensor).value.name

    def record_gradient(self, tensor: Tensor, grad: Tensor) -> None:
        """Keep the gradient of a tensor from outside as a result of the program."""
        self.program.gradients.append((self._variable_before(tensor), self.value_of(grad)))

    def finish(self) -> None:
        """Turn in-place changes of outside tensors into assigns, and undo them."""
        for tensor in self.mutations.tensors():
            if base_of(tensor) is not None:
                continue  # it follows when its base, which has changed too, is assigned
            now, variable = self.value_of(tensor), self._variable_before(tensor)
            if now is not variable.value:
                self.program.assigns.append((variable, now))
        self.undo()

    def undo(self) -> None:
        """Give every tensor from outside back what it had before the capture."""
        self.mutations.undo()
