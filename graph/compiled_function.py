"""A compiled function: a forward program for arguments of one signature, and its backward ones.

The forward program gives what the function returns, and the values that backward reads. The node of
the call on the tape saves these values. Source: the partitioning of joint graphs in AOTAutograd
(PyTorch).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NoReturn, TypeAlias

from ..engine import interpreter
from ..engine.autograd_tape import Edge, Node, Output, saved_hooks
from ..engine.captures import CAPTURES, waited
from ..engine.commit import restored
from ..engine.generator import record_draws
from ..engine.inplace import set_result, take
from ..engine.interpreter import Interpreter
from ..engine.meta import Meta
from ..engine.op import Arg, Needs
from ..engine.tensor import Tensor
from ..engine.views import frozen
from ..errors import AutogradError, OnefoldError, OnefoldRuntimeError, user_line
from .backward_programs import BackwardPrograms, executable
from .function_capture import FunctionCapture
from .function_results import At, FunctionResults, tensor_at
from .ir import Program, verify
from .pytree import tree_map
from .random_draws import Draws, Taken

Given: TypeAlias = tuple[tuple[object, ...], dict[str, object]]  # arguments, and those by name


class CompiledFunction:
    """A function compiled for arguments of one signature; on the tape it is the op of its calls."""

    def __init__(
        self,
        name: str,
        function: Callable[..., object],
        given: Given,
        inputs: Sequence[Tensor],
        named: Mapping[str, Tensor],
        paths: Mapping[int, str],
        around: Callable[[Interpreter], Interpreter],
        lock: AbstractContextManager[bool],
        cuda_graphs: bool = False,
    ) -> None:
        """Capture `function` for these arguments, whose tensors are `inputs`, each once.

        `finish` makes the programs. `named` are tensors of modules, `paths` those of the modules by
        their identities. `around` gives the interpreter for the capture, such as that of autocast.
        No tensor has changed afterwards. `lock` is held while a program runs, also by the caller.
        """
        self.name = f"compiled {name}"
        self._lock = lock
        self._cuda_graphs = cuda_graphs
        with CAPTURES:
            capture = FunctionCapture(named, paths)
            with restored(capture.leave):
                places = [capture.placeholder(x, f"input.{i}") for i, x in enumerate(inputs)]
                of = {id(x): place for x, place in zip(inputs, places, strict=True)}
                args, kwargs = tree_map(given, lambda x: of[id(x)])
                with (
                    record_draws() as noted,
                    saved_hooks.emptied(),
                    interpreter.using(around(capture)),
                ):
                    returned = function(*args, **kwargs)
                    self._draws = Draws(noted)
                self._results = FunctionResults(capture, places, returned)
                capture.keep_end()
        self.modules = list(capture.modules.values())  # those called, as the capture keeps them
        self.functions = capture.functions
        self._capture = capture
        self._captured = capture.program
        self._outside: Sequence[tuple[Tensor, Meta, bool]] = ()

    def finish(self, named: Sequence[Tensor]) -> Sequence[Tensor]:
        """Make the programs. Returns those of the named tensors that every call is then given.

        They follow the arguments. Others are read from where they were found at the capture.
        """
        capture, results, program = self._capture, self._results, self._captured
        variables = {id(variable.tensor): variable for variable in program.variables}
        users = Counter(capture.values.values())
        given = [
            tensor for tensor in named
            if id(tensor) in variables and users[variables[id(tensor)].value] == 1
        ] if not results.changes else []  # fmt: skip
        first = len(program.inputs)
        results.rename({id(tensor): first + number for number, tensor in enumerate(given)})
        program.inputs += [variables.pop(id(tensor)).value for tensor in given]
        program.variables = list(variables.values())
        ids = set(map(id, given))
        outside = [x for key, x in capture.outside.items() if key not in ids]
        self._outside = [(x, x.meta, x.node is None) for x in outside]
        self._backward = BackwardPrograms(
            capture, results, self._draws, program, bool(given), self._cuda_graphs
        )
        self._plan(program)
        return given

    def _plan(self, program: Program) -> None:
        """Make the forward program, and decide which values are saved."""
        results = self._results
        known: dict[int, At] = {
            **{value.number: index for index, value in enumerate(program.inputs)},
            **{variable.value.number: variable.tensor for variable in program.variables},
        }
        computed = [v for v in self._backward.saved if v.number not in known]
        given = [v for v in self._backward.saved if v.number in known]
        self._backward.save([*given, *computed])
        self._saved = [known[value.number] for value in given]
        self._targets = [target.at for target in self._backward.targets]
        changed = [_key(change.at) for change in results.changes]
        self._replaced = [i for i, at in enumerate(self._saved) if _key(at) in changed]
        program.outputs = [*results.values, *computed]
        program.draws = self._draws
        verify(program)
        self._forward = executable(program, self._cuda_graphs)

    @property
    def program(self) -> Program:
        """The forward program."""
        return self._forward.program

    @property
    def cuda_graph_reason(self) -> str:
        """`Executor.cuda_graph_reason` of the forward program."""
        return self._forward.cuda_graph_reason

    @property
    def backward_program(self) -> Program | None:
        """The most recent backward program."""
        return self._backward.latest()

    def holds(self) -> bool:
        """Whether the tensors from outside are still laid out, and need gradients, as they did."""
        for tensor, meta, constant in self._outside:
            if tensor.meta is not meta or (tensor.node is None) is not constant:
                return False
        return True

    def __call__(self, inputs: Sequence[Tensor]) -> object:
        """The result for tensors of the signature, each once, and those that `finish` gave."""
        results = self._results
        if results.changes:
            results.check_families(inputs)
        saved = [inputs[at] if isinstance(at, int) else at for at in self._saved]
        targets = [inputs[at] if isinstance(at, int) else at for at in self._targets]
        parents = tuple([tensor.node for tensor in targets])
        for index in self._replaced:
            saved[index] = frozen(saved[index])
        with interpreter.grad_mode(False):
            made = self._run(inputs)
            for at, index, recorded in results.changes:
                if not recorded:
                    take(tensor_at(at, inputs), made[index])
        if results.ends:
            args = (self._draws.taken, *saved, *made[len(results.values) :])
            node = Node(self, parents, args, None, self._backward.metas)
            for number, end in enumerate(results.ends):
                made[end.output].node = Output(node, number)
        for at, index, recorded in results.changes:
            if recorded:
                with interpreter.grad_mode(True):
                    set_result(tensor_at(at, inputs), made[index], self.name)
        return results.arrange(inputs, made)

    def _run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        try:
            return self._forward.run(inputs)
        except OnefoldError as error:
            if not waited(error, [*inputs, *[tensor for tensor, _, _ in self._outside]]):
                raise
        return self._run(inputs)

    def vjp(
        self,
        needs: Needs,
        dy: Sequence[Tensor | None],
        y: Arg,
        taken: Taken,
        *saved: Tensor,
    ) -> Sequence[Tensor | None]:
        """The gradients of the tensors that the call read."""
        if interpreter.capturing():
            raise OnefoldRuntimeError(
                f"the gradient of the {self.name} was asked for while another program is "
                f"captured, at {user_line()}; call it there, not before"
            )
        with self._lock, interpreter.grad_mode(False):
            self._draws.repeat(taken)
            found = self._backward.run([need is not None for need in needs], dy, saved)
        if interpreter.is_grad_enabled():
            edges = [need if isinstance(need, Edge) else None for need in needs]
            edges += [part.node for part in dy if part is not None]
            _forbid_second(self.name, found, edges)
        return found


def _key(at: At) -> object:
    """The key that identifies a tensor of a call."""
    return at if isinstance(at, int) else ("outside", id(at))


class _Twice:
    """The op of the gradients of a compiled function, which cannot be differentiated."""

    def __init__(self, name: str) -> None:
        self.name = name

    def vjp(self, needs: Needs, *args: object) -> NoReturn:
        raise AutogradError(
            f"the gradient of a gradient of the {self.name} was asked for, but compiled functions "
            "have first gradients only; call the function itself, or compile it with disable=True"
        )


def _forbid_second(name: str, found: Sequence[Tensor | None], edges: Sequence[Edge | None]) -> None:
    """Record gradients on the tape, for `create_graph`, so that their gradients are an error."""
    made = [dx for dx in found if dx is not None]
    node = Node(_Twice(name), tuple(edges), (), None, tuple([dx.meta for dx in made]))
    for index, dx in enumerate(made):
        dx.node = Output(node, index)
