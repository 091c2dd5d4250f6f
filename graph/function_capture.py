"""Function capture: a function as a program, with a tape that ends at tensors from outside.

During the capture, tensors from outside stand for values of the program, and are leaves or empty
nodes on the tape. So the tape of the function can be replayed later, whatever has happened to these
tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from ..engine import interpreter
from ..engine.autograd_tape import Edge, Leaf, Node
from ..engine.commit import restored
from ..engine.op import Needs
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, user_line
from .capture import Capture
from .captured_values import Content
from .ir import Program, Value, Variable, captured

R = TypeVar("R")


class _Outside:
    """The op of a tensor from outside on the tape of the function."""

    name = "outside"

    def vjp(self, needs: Needs, *args: object) -> NoReturn:
        raise AssertionError("no gradient goes past the inputs of a captured function")


_OUTSIDE = _Outside()


class _OutsideLeaf(Leaf):
    """Stands for the leaf of a tensor from outside; other threads find its gradient there."""

    __slots__ = ("_leaf",)

    def __init__(self, tensor: Tensor, leaf: Edge) -> None:
        self._leaf: Edge = Leaf(tensor)  # a new leaf sets its gradient
        super().__init__(tensor)
        self._leaf = leaf

    @property
    def grad(self) -> Tensor | None:
        return None if interpreter.capturing() else self._leaf.grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if not interpreter.capturing():
            self._leaf.grad = value


class FunctionCapture(Capture):
    """Records the ops of a function, and later those of its gradients."""

    def __init__(self, named: Mapping[str, Tensor], paths: Mapping[int, str]) -> None:
        # Those that were called, by their identities, and their attributes before.
        self.modules: dict[int, tuple[object, dict[str, object]]] = {}
        self.functions: list[object] = []  # of the program, which other code called
        self.outside: dict[int, Tensor] = {}  # those met, by their identities
        self.values: dict[int, Value] = {}  # that these are when the function begins
        self.argument_nodes: list[Edge | None] = []  # where the arguments are on the tape
        self._edges: dict[Edge, Edge] = {}  # what stands for the places of tensors from outside
        self._end: dict[int, Content] = {}
        super().__init__(named, paths, {})

    @property
    def keeps_masks(self) -> bool:
        return True  # backward is a program of its own, which reads what forward saves

    def placeholder(self, tensor: Tensor, name: str) -> Tensor:
        """A captured tensor for an argument of the function."""
        made = self.input(tensor.meta, name)
        if tensor.node is not None:
            made.node = _end_of_tape(made, tensor.node)
        self.argument_nodes.append(made.node)
        return made

    def _variable(self, tensor: Tensor) -> Variable:
        found = super()._variable(tensor)
        self.outside[id(tensor)] = tensor
        self.values[id(tensor)] = found.value
        self.mutations.note(tensor)
        tensor.shards = captured(found.value).shards
        edge = tensor.node
        if edge is not None:
            if edge not in self._edges:
                is_leaf = edge.is_leaf
                stand_in = _OutsideLeaf(tensor, edge) if is_leaf else _end_of_tape(tensor, edge)
                self._edges[edge] = stand_in
            tensor.node = self._edges[edge]
        return found

    def node_before(self, tensor: Tensor) -> Edge | None:
        """The place on the tape of a tensor from outside when the function begins."""
        before = self.mutations.node_before(tensor)
        return None if before is None else self._edges[before]

    def keep_end(self) -> None:
        """Save the state of tensors from outside at the end of the function, for `resumed`."""
        self._end = self.mutations.now()

    def leave(self) -> None:
        """Restore every tensor from outside to its state before the function."""
        self.undo()
        self._variables.clear()  # what they are known by may be anything later
        self._edges.clear()  # they hold all that tensors from outside were computed from

    @contextmanager
    def resumed(self) -> Iterator[Program]:
        """A block in the state of the end of the function, which records a new program.

        Raises OnefoldRuntimeError when the block changes a tensor from outside.
        """
        program = self.program = Program()
        for content in self._end.values():
            self.mutations.note(content.tensor)
        with restored(self.leave):
            self.mutations.put_back(self._end)
            yield program
            same = {id(content.shards) for content in self._end.values()}
            same.update(id(variable.value) for variable in program.variables)
            if any(id(tensor.shards) not in same for tensor in self.mutations.tensors()):
                raise OnefoldRuntimeError(
                    "the gradient of a compiled function changes a tensor in place, which only "
                    "eager mode can do; use the function as it is"
                )

    # Modules.

    def call_module(
        self,
        module: object,
        forward: Callable[..., R],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> R:
        if id(module) not in self.modules:
            self.modules[id(module)] = module, dict(vars(module))
        return super().call_module(module, forward, args, kwargs)

    def before_functions(self, *functions: object) -> None:
        self.functions += functions

    # What belongs to a whole step.

    def start_backward(self, gradient: Tensor) -> Tensor:
        raise _whole_step("backward()")

    def clip_gradients(
        self, params: Sequence[Tensor], max_norm: float, norm_type: float, error_if_nonfinite: bool
    ) -> Tensor:
        raise _whole_step("clip_grad_norm_()")

    def before_gradient(self, tensor: Tensor) -> None:
        raise _whole_step("a change of .grad, as zero_grad() makes it,")


def _end_of_tape(tensor: Tensor, edge: Edge) -> Edge:
    return Leaf(tensor) if edge.is_leaf else Node(_OUTSIDE, (), (), None, tensor.meta)


def _whole_step(what: str) -> OnefoldRuntimeError:
    return OnefoldRuntimeError(
        f"{what} is a part of a training step, at {user_line()}. Return the loss and do that "
        "outside: gradients flow through a compiled function. For a whole step as one program, "
        "write it as the build() of an nn.Graph"
    )
