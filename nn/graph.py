"""Graph: a training or inference step, captured once from eager code and run as a program."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import partial, update_wrapper, wraps
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .. import graph as on_demand
from ..distributed import provenance
from ..distributed.world import world
from ..engine import interpreter
from ..engine.argument_errors import with_argument_errors
from ..engine.autocast import Autocast
from ..engine.commit import Change
from ..engine.layout_view import as_html
from ..engine.meta import Meta
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, OnefoldTypeError
from ..graph.changed_inputs import check_changed
from ..graph.compiled_graph import Compiled, State, compile_graph, nested
from ..graph.debug_log import Debug, debug_settings
from ..graph.graph_config import GraphConfig, GraphModule
from ..graph.ir import Program
from ..graph.job_summary import JobSummary
from ..graph.memory.memory_plan import MemoryPlan
from ..graph.pytree import tree_leaves, tree_structure
from ..graph.recaptures import Recaptures
from ..graph.setting_checks import integer
from ..graph.stored_layouts import StoredLayouts
from ..graph.unsupported import GRAPH, PROXIES, missing_attribute
from ..graph.zero import Zero
from ..optim.captured import Updating
from ..optim.grad_scaler import StaticGradScaler
from ..optim.lr_scheduler import LRScheduler
from ..optim.optimizer import Optimizer
from .graph_checks import check_optimizer, check_scaler
from .graph_state import Parts, StateDict, load_state, state_of
from .graph_structure import Signature, Structure, check_inputs, same_tables, walk
from .graph_text import GraphTree
from .module import Module

if TYPE_CHECKING:
    from ..graph.hardware import Hardware
    from ..graph.report import Searched
    from ..graph.simulator import Simulation

__all__ = ["Graph", "GraphConfig", "GraphModule"]

MAX_COMPILED = 10  # input signatures kept, the latest used

G = TypeVar("G", bound="type[Graph]")


class Graph:
    """The base of a graph: assign modules in `__init__`, write one step in `build`.

    The first call with inputs of some shapes and layouts captures `build` under the same eager
    code and compiles it; later calls only run the program. With an optimizer (`add_optimizer`,
    and `loss.backward()` inside build) one call is one whole training step. Parameters are those
    of the modules: eager code and other graphs see every update.

    >>> import onefold as flow
    >>> class Double(flow.nn.Graph):
    ...     def build(self, x):
    ...         return x + x
    >>> Double()(flow.ones(2)).numpy()
    array([2., 2.], dtype=float32)
    """

    max_compiled = MAX_COMPILED
    _modules: OrderedDict[str, Module]
    _debug: Debug

    def __init__(
        self,
        *,
        enable_get_runtime_state_dict: bool = False,
        debug_v_level: int = -1,
        debug_ranks: int | Sequence[int] | None = None,
        debug_max_py_stack_depth: int = 2,
        debug_only_user_py_stack: bool = True,
        debug_op_repr_with_py_stack: bool = False,
    ) -> None:
        if enable_get_runtime_state_dict:
            raise missing_attribute(GRAPH, type(self).__name__, "runtime_state_dict")
        self.__dict__["_modules"] = OrderedDict()  # first: attributes are looked up in it
        self.config = GraphConfig()
        self._optimizers: list[tuple[Optimizer, LRScheduler | None]] = []
        self._scaler: StaticGradScaler | None = None
        self._compiled: OrderedDict[Signature, Compiled] = OrderedDict()
        self._structure = Structure()
        self._recaptures = Recaptures()
        self._zero = Zero(None)
        self._stored = StoredLayouts()
        self._steps = 0  # how many calls have trained
        self.debug(
            debug_v_level,
            ranks=debug_ranks,
            max_py_stack_depth=debug_max_py_stack_depth,
            only_user_py_stack=debug_only_user_py_stack,
            op_repr_with_py_stack=debug_op_repr_with_py_stack,
        )

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """One step, which every graph defines."""
        raise NotImplementedError(f'{type(self).__name__} is missing the required "build"')

    def __setattr__(self, name: str, value: object) -> None:
        if "_modules" not in self.__dict__:
            raise OnefoldRuntimeError(
                f"cannot assign {name!r} before Graph.__init__() call: call super().__init__() "
                "first"
            )
        if isinstance(value, Graph):
            raise OnefoldTypeError(
                f"{name!r} is a Graph; graphs cannot be nested, assign its modules instead"
            )
        if isinstance(value, Module) or name in self._modules:
            self._compiled.clear()
        if not isinstance(value, Module):
            object.__setattr__(self, name, value)  # by a property of that name, if there is one
            self._modules.pop(name, None)
            return
        self._modules.pop(name, None)
        self.__dict__.pop(name, None)
        self._modules[name] = value

    def __getattr__(self, name: str) -> Any:
        if "_modules" not in self.__dict__ and not name.startswith("__"):
            raise OnefoldRuntimeError(
                f"cannot use {type(self).__name__}.{name} before Graph.__init__() call: call "
                "super().__init__() first"
            )
        found = self.__dict__.get("_modules", {}).get(name)
        if found is None:
            raise missing_attribute(GRAPH, type(self).__name__, name)
        return found

    def __delattr__(self, name: str) -> None:
        if self._modules.pop(name, None) is None:
            super().__delattr__(name)
        self._compiled.clear()

    def __getstate__(self) -> dict[str, object]:
        """The state for copies: all but the compiled programs, which are bound to these tensors."""
        return {**self.__dict__, "_compiled": OrderedDict(), "_structure": Structure()}

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def is_compiled(self) -> bool:
        return bool(self._compiled)

    @property
    def training(self) -> bool:
        """Whether a call trains: whether there is an optimizer."""
        return bool(self._optimizers)

    def add_optimizer(self, optim: Optimizer, *, lr_sch: LRScheduler | None = None) -> None:
        """Make every call end with a step of `optim` and of its learning rate schedule.

        The call then clears no eager gradient and leaves none. Raises OnefoldRuntimeError for a
        parameter that belongs to no module of this graph when the graph is compiled.
        """
        check_optimizer(optim, lr_sch, [other for other, _ in self._optimizers])
        self._optimizers.append((optim, lr_sch))
        self.config.training = True
        self._compiled.clear()

    def set_grad_scaler(self, grad_scaler: StaticGradScaler) -> None:
        """Scale the loss for backward, and the gradients back before they are used.

        Takes a `flow.amp.GradScaler` or `flow.amp.StaticGradScaler`, for `config.enable_amp`; one
        that is not enabled scales nothing.
        """
        check_scaler(grad_scaler)
        self._scaler = grad_scaler if grad_scaler.is_enabled() else None
        self._compiled.clear()

    # Running.

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if interpreter.get_current() is not None:
            self._check_call()
        inputs = tree_leaves((args, kwargs), "an input")
        compiled = self._find(args, kwargs, inputs)
        if world().planned:
            return compiled.arrange(compiled.blank_outputs())
        check_changed(self.name, compiled.program, inputs)
        last = [self._count_step] if self._optimizers else []
        run: Callable[..., list[Tensor]] = compiled.executable.run
        if provenance.state.on:
            origin = provenance.of_call(compiled.origin, [x.shards for x in inputs])
            run = partial(provenance.within, origin, run)
        outputs = interpreter.in_grad_mode(False, run, inputs, last)
        for optim, _ in self._optimizers:
            optim.replicas.after_step(optim)
        return compiled.arrange(outputs)

    def _check_call(self) -> None:
        if interpreter.capturing():
            raise nested()
        if isinstance(interpreter.get_current(), Autocast):
            raise OnefoldRuntimeError(
                f"{self.name} was called under autocast, which does not reach into a program that "
                "is captured; call self.config.enable_amp(dtype=...), or use autocast inside build"
            )

    def _compile(self, *args: object, **kwargs: object) -> None:
        """Capture and compile for these inputs without running."""
        self._find(args, kwargs, tree_leaves((args, kwargs), "an input"))

    def _find(
        self, args: tuple[object, ...], kwargs: dict[str, object], inputs: Sequence[Tensor]
    ) -> Compiled:
        metas = tuple([x.meta for x in inputs])
        form = tree_structure((args, kwargs))
        key = (form, metas, self._modes(), self.config.settings)
        self._follow_zero()
        found = self._compiled.get(key)
        if found is None or found.outdated():
            self._structure.read(self._modules.values())
            key = (form, metas, self._modes(), self.config.settings)
            state = self._state()
            self._check_inputs(form, metas)
            with same_tables(self._modules) as check:

                @wraps(self.build)
                def build(*args: object, **kwargs: object) -> object:
                    result = self.build(*args, **kwargs)
                    check()
                    return result

                given = (args, kwargs)
                # In a context of its own, which is left whole wherever an interrupt arrives.
                found = copy_context().run(
                    compile_graph, build, given, metas, state, self.config, self._zero, self._stored
                )
            if key not in self._compiled:
                self._recaptures.make_room(self.name, self._compiled, self.max_compiled, key)
            self._compiled[key] = found
        self._compiled.move_to_end(key)
        return found

    def _check_inputs(self, form: object, metas: Sequence[Meta]) -> None:
        """Raise OnefoldTypeError for inputs that differ from earlier ones in more than shapes."""
        check_inputs(self.name, self._compiled, form, metas)

    def _modes(self) -> tuple[object, ...]:
        return self._structure.key(optimizer for optimizer, _ in self._optimizers)

    def _follow_zero(self) -> None:
        """Drop the compiled programs if `config.enable_zero` was called since the last call."""
        if self.config.zero != self._zero.settings:
            self._zero.end()
            self._zero = Zero(self.config.zero)
            self._compiled.clear()

    def _state(self) -> State:
        tensors, paths, views = walk(self._modules)
        self._parts().paths()  # raises for parameters that are in no module
        trained = [param for _, _, param in self._parts().trained()]
        scale = None if self._scaler is None else self._scaler.on
        debug = replace(self._debug, name=f"{self.name}:{type(self).__name__}")
        optimizers = [optim for optim, _ in self._optimizers]
        in_backward = self.config.updates_in_backward
        updates = Updating(optimizers, self._scaler, in_backward) if optimizers else None
        return State(tensors, paths, views, trained, updates, self.config.amp_dtype, scale, debug)

    def _count_step(self) -> list[Change]:
        """Advance the schedules after a call that trained."""
        changes: list[Change] = [partial(self.__dict__.__setitem__, "_steps", self._steps + 1)]
        for _, schedule in self._optimizers:
            if schedule is not None:
                own = type(schedule).step is not LRScheduler.step  # a subclass does more
                changes += [schedule.step] if own else schedule.changes()
        return changes

    # State.

    def _parts(self) -> Parts:
        return Parts(self.name, self._modules, self._optimizers, self._scaler, self._steps)

    def state_dict(self, destination: StateDict | None = None) -> StateDict:
        """Each module's state under its name, and flat keys for what training keeps.

        Those are "model.weight-momentum" (`-m`, `-v`, `-max_v` and `-step` for AdamW, else the
        optimizer's own names), and with "System-Train-" before the graph's name "TrainStep-",
        "ParamGroups-" (the groups' options, by optimizer), "LRScheduler-" and "GradScaler-".
        Values are logical: a graph with other layouts, or with ZeRO, takes them as well.
        """
        return state_of(self._parts(), destination)

    @with_argument_errors
    def load_state_dict(self, state_dict: Mapping[str, object], strict: bool = True) -> None:
        """Restore what `state_dict` gave, before the first call or later; all or nothing.

        Raises OnefoldRuntimeError for missing and unknown keys (if `strict`), other shapes, and
        the state of another optimizer.
        """
        self._steps = load_state(self._parts(), state_dict, strict)

    # Looking.

    def debug(
        self,
        v_level: int = -1,
        *,
        ranks: int | Sequence[int] | None = None,
        max_py_stack_depth: int = 2,
        only_user_py_stack: bool = True,
        op_repr_with_py_stack: bool = False,
    ) -> None:
        """Print to stdout what is compiled from now on.

        Level -1 tells nothing, 0 the stages of compiling, 1 also each module, 2 also each operator,
        3 also the program and the memory of each rank. On rank 0, or on the `ranks` given (-1:
        all). With `op_repr_with_py_stack` operators, also those of `repr(graph)`, show up to
        `max_py_stack_depth` lines of the program that called them, innermost first; with
        `only_user_py_stack` False lines of onefold's own layers count too.
        """
        self._debug = debug_settings(
            v_level, ranks, max_py_stack_depth, only_user_py_stack, op_repr_with_py_stack
        )

    @property
    def program(self) -> Program | None:
        """The printable program of the latest used compiled graph; None before the first call."""
        return self._latest("program").program if self._compiled else None

    def plan(self, rank: int) -> str:
        """The instructions of one rank in a call of the latest used compiled graph.

        With stages: its instructions (actions of the schedule, sends, receives, copies to the host
        and back), then the steps of each action. Raises OnefoldTypeError or OnefoldValueError for
        what is no rank.
        """
        integer(f"{self.name}.plan: rank", rank, least=0)
        return self._latest("plan").plan(rank)

    @property
    def cuda_graph_reason(self) -> str:
        """Why the last call did not replay CUDA graphs; empty if it did.

        Raises OnefoldRuntimeError before the first compile. See `config.enable_cuda_graph`.
        """
        return self._latest("cuda_graph_reason").executable.cuda_graph_reason

    def schedule(self) -> str:
        """The schedule of the latest used compiled graph as a picture in text."""
        return self._latest("schedule").schedule()

    def _latest(self, what: str) -> Compiled:
        if not self._compiled:
            raise OnefoldRuntimeError(
                f"{self.name}.{what}: nothing is compiled yet; call the graph, or compile it for "
                "some inputs with graph._compile(*inputs)"
            )
        return next(reversed(self._compiled.values()))

    def memory(self, rank: int) -> MemoryPlan:
        """The memory plan of `rank` for a call of the latest used compiled graph.

        Raises OnefoldRuntimeError before the first compile, OnefoldValueError for a rank on which
        nothing of the program lies.
        """
        return self._latest("memory").memory(rank)

    def simulate(
        self,
        hardware: str | Path | Hardware | None = None,
        *,
        tokens: int | None = None,
        memory: bool = True,
    ) -> Simulation:
        """A simulation of a call of the latest used compiled graph on this hardware.

        `hardware` is "a100-80", "h100", "h200", "cpu", "this-machine" (which `python -m
        onefold.graph.calibrate` measures) or the path of a TOML file; without it, that of the
        `flow.planning` block. `tokens` are those of one call, for tokens per second. Without
        `memory` the bytes of each rank are not planned, which may take long. Raises
        OnefoldRuntimeError before the first compile, OnefoldValueError for hardware that is not
        given, unknown, or a file with a missing field.
        """
        compiled = self._latest("simulate")
        found: Simulation = on_demand.simulator.simulate(compiled, hardware, tokens, memory)
        return found

    def report(
        self,
        path: str | Path,
        hardware: str | Path | Hardware | None = None,
        *,
        tokens: int | None = None,
        memory: bool = True,
        searched: Iterable[Searched] = (),
    ) -> None:
        """Write an HTML page that shows the latest used compiled graph, and needs no network.

        `hardware`, `tokens` and `memory` are those of `simulate`; without hardware, outside of
        `flow.planning`, it is "this-machine" if that was measured. Where there is none there are no
        times. `searched` are strategies that were compared, the chosen one first: rows with `name`,
        `seconds`, `memory` and `description`. Raises OnefoldRuntimeError before the first compile,
        OnefoldValueError for unknown hardware and a path that cannot be written.
        """
        compiled = self._latest("report")
        on_demand.report.write(path, self.name, compiled, hardware, tokens, memory, searched)

    def summary(self) -> JobSummary:
        """The memory and communication of every rank in a call of the latest used compiled graph.

        Ranks that do the same are one row. Raises OnefoldRuntimeError before the first compile.
        """
        return self._latest("summary").summary

    def __repr__(self) -> str:
        tree = GraphTree(self.program, self._debug.op_lines)
        return tree.text(self.name, type(self).__name__, self.config, self._modules)

    def _repr_html_(self) -> str:
        """The graph in a notebook: its text, and the ranks that hold parts of global tensors."""
        metas = [
            (f"{path}.{name}", meta)
            for path, module in self._modules.items()
            for name, meta in module._global_metas()
        ]
        return f"<pre>{escape(repr(self))}</pre>{as_html(metas)}"

    @staticmethod
    def with_dynamic_input_shape(
        *, size: int = MAX_COMPILED, enable_shared: bool = True
    ) -> Callable[[G], G]:
        """A class decorator: keep up to `size` compiled graphs, one for each shape of the inputs.

        Parameters and optimizer state are shared by all of them in any case, so `enable_shared`
        changes nothing.
        """
        integer("with_dynamic_input_shape: size", size, least=1)

        def decorate(graph: G) -> G:
            graph.max_compiled = size
            return graph

        return decorate

    @staticmethod
    def trace(function: Callable[..., object]) -> Graph:
        """The function, or module, as a graph: captured at its first call, then run as a program.

        >>> double = flow.nn.Graph.trace(lambda x: x + x)
        >>> double(flow.ones(2)).numpy()
        array([2., 2.], dtype=float32)
        """
        if not callable(function):
            raise OnefoldTypeError(f"trace needs a function or a module, but got {function!r}")
        made = _Traced(function)
        if not isinstance(function, Module):
            update_wrapper(made, function)
        return made


class _Traced(Graph):
    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def build(self, *args: object, **kwargs: object) -> object:
        return self.function(*args, **kwargs)

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))


def __getattr__(name: str) -> object:
    raise missing_attribute(PROXIES, __name__, name)
