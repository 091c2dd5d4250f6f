"""Job: a decorated function that is traced into a graph and called with numpy arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..engine import interpreter
from ..engine.commit import restored
from ..engine.convert import global_to_global
from ..engine.generator import record_draws
from ..engine.grad_attributes import register_hook
from ..engine.grad_mode import enable_grad
from ..engine.meta import Meta
from ..engine.ops.arithmetic import div
from ..engine.ops.reduce import sum as sum_op
from ..engine.placement import Placement
from ..engine.sbp import broadcast
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, OnefoldTypeError
from ..graph.capture import Capture
from ..nn.graph import Graph
from ..nn.module import Module
from ..optim.lr_scheduler.scheduler import LRScheduler
from . import scope
from .accumulation import Accumulation
from .blob import Blob, Key
from .function_config import FunctionConfig
from .placeholder import Placeholder
from .regularizers import Regularizer
from .results import Future, Result, check_returned, rebuild, typed
from .session import Variable, session
from .tracing import is_tracing, trace
from .update_rule import Optimizer
from .variables import initialize

Parts = dict[Key, Tensor]  # of a blob

_UNANNOTATED = inspect.Signature.empty
_MAX_SHAPES = 32  # compiled programs of a job, for lists of arrays whose sizes differ


class Job:
    """A function of blobs that runs as a graph; calling it takes numpy arrays.

    What it is traced for is known from its declaration alone, so `trace` needs no data. It is of
    the first generation where its arguments have definitions as default values, or its
    configuration says how to train: then the view is mirrored unless another is said, layers
    without a name get one, and a call gives a future.
    """

    def __init__(
        self, function: Callable[..., object], trains: bool, config: FunctionConfig | None
    ) -> None:
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__
        self.config = config or FunctionConfig()
        signature = inspect.signature(function, eval_str=True)
        self.placeholders = [_placeholder(self.name, p) for p in signature.parameters.values()]
        self.signature = signature
        self.first_generation = self.config.train.is_set or any(
            isinstance(p.default, Placeholder) for p in signature.parameters.values()
        )
        self.trains = trains or self.config.train.is_set
        outside = scope.current_view("mirrored" if self.first_generation else "consistent")
        self.view = self.config.view or outside
        self.used: dict[str, Variable] = {}
        self.accumulation = Accumulation()
        self._penalties: dict[str, Regularizer] = {}
        self._secondary: set[str] = set()  # variables with the second learning rate
        self._unnamed: dict[str, int] = {}
        self._losses: list[Blob] = []
        self._optimizer: Optimizer | None = None
        self._watched: list[tuple[Blob, Callable[[Result], object]]] = []
        self._layouts: list[Meta] = []  # of what is returned, and then of what is watched
        self._graph: _JobGraph | None = None

    def __repr__(self) -> str:
        kind = "train" if self.trains else "predict"
        return f"job {self.name}({', '.join(map(repr, self.placeholders))}), {kind}, {self.view}"

    @property
    def graph(self) -> Graph:
        """The graph that runs the job; it prints."""
        self.trace()
        assert self._graph is not None
        return self._graph

    @property
    def default_dtype(self) -> torch.dtype:
        """The dtype of variables that name none."""
        return self.config.dtype

    def devices(self) -> Placement:
        """The devices of the job."""
        if self.config.devices is not None:
            return self.config.devices.devices()
        return session.devices.everywhere(session.devices.main_tag())

    # Calling.

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if is_tracing():
            raise OnefoldRuntimeError(
                f"job {self.name!r} was called in another job; call a plain function there that "
                "both share"
            )
        devices = self.devices()
        try:
            bound = self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise OnefoldTypeError(f"job {self.name!r}: {error}") from None
        missing = [name for name in self.signature.parameters if name not in bound]
        if missing:
            raise OnefoldTypeError(f"job {self.name!r} needs an array for {', '.join(missing)}")
        fed = []
        for placeholder, name in zip(self.placeholders, self.signature.parameters, strict=True):
            who = f"argument {name!r} of job {self.name!r}"
            fed.append(placeholder.arrays(bound[name], who, devices))
        if self.first_generation and not session.initialized:
            raise OnefoldRuntimeError(
                f"job {self.name!r} was called before its variables were initialized; call "
                "check_point = flow.train.CheckPoint(), and then check_point.init() or "
                "check_point.load(path)"
            )
        session.start()
        assert self._graph is not None
        given = [
            {key: placeholder.tensor(key, array, devices) for key, array in arrays}
            for placeholder, arrays in zip(self.placeholders, fed, strict=True)
        ]
        return self._deliver(*self._graph(given))

    def _deliver(self, returned: object, watched: Sequence[Parts]) -> Any:
        layouts = iter(self._layouts)

        def result(parts: Parts) -> Result:
            return Result(parts, next(layouts, None))

        results = rebuild(returned, result)
        for (_, handler), parts in zip(self._watched, watched, strict=True):
            handler(result(parts))
        annotation = self.signature.return_annotation
        if self.first_generation or annotation is _UNANNOTATED:
            return Future(results)
        return typed(results, annotation, self.name)

    # Tracing.

    def trace(self) -> None:
        """Learn which variables, losses and optimizer the function uses, and make its graph."""
        if self._graph is not None:
            return
        devices = self.devices()
        capture = Capture({}, {}, {})
        try:
            with restored(capture.undo), record_draws(), interpreter.using(capture), enable_grad():
                given = [
                    {key: capture.input(p.meta(key, devices), "input") for key in p.keys(devices)}
                    for p in self.placeholders
                ]
                self._run(given, devices)
        except BaseException:
            for variable in self.used.values():
                if variable.is_new:
                    session.variables.pop(variable.name, None)
            raise
        for variable in self.used.values():
            if variable.is_new:
                initialize(variable)
        self._graph = self._compile()
        session.devices.fixed = True

    def _compile(self) -> _JobGraph:
        graph = _JobGraph(self)
        if self.accumulation.count > 1:
            graph.config.set_gradient_accumulation_steps(self.accumulation.count)
            self.accumulation.in_time = True
        if self.config.amp:
            graph.config.enable_amp(True)
        if not self.trains:
            return graph
        optimizer = self._optimizer
        if self.config.train.is_set:
            optimizer = self.config.train.optimizer(self.name)
        if optimizer is None or not self._losses:
            raise OnefoldRuntimeError(
                f"job {self.name!r} is to train, but has no "
                f"{'loss' if optimizer else 'optimizer'}: call flow.optimizer.SGD(schedule)"
                ".minimize(loss) in its function, or flow.losses.add_loss(loss) where its "
                "configuration says how to train"
            )
        trained = {n: v.tensor for n, v in self.used.items() if v.tensor.requires_grad}
        groups = optimizer.groups(trained, self.config.train.second_rate, self._secondary)
        made = optimizer.engine(groups, lr=optimizer.schedule.rate(0.0, 0))
        graph.add_optimizer(made, lr_sch=LRScheduler(made, optimizer.schedule))
        if optimizer.scale is not None:
            graph.set_grad_scaler(optimizer.scale)
        if self.config.splits_state:
            graph.config.enable_zero(True)
        return graph

    def _run(self, given: Sequence[Parts], devices: Placement) -> tuple[object, list[Parts]]:
        """Call the function on captured tensors; gives what it returns and what is watched, whole.

        Blobs are given as their parts.
        """
        self.used, self._penalties, self._unnamed = {}, {}, {}
        self._secondary, self._losses, self._watched, self._layouts = set(), [], [], []
        blobs = [p.given(parts) for p, parts in zip(self.placeholders, given, strict=True)]
        self.accumulation.begin(blobs)
        with trace(self), scope.of_job(self.view, devices):
            returned = self.function(*blobs)
            found = rebuild(returned, self._whole)
            if self._graph is not None and self.trains:
                self._backward()
            return found, [self._whole(blob) for blob, _ in self._watched]

    def _whole(self, blob: object) -> Parts:
        """The parts of a blob, whole on all devices, so that every process can read them."""
        blob = check_returned(blob, self.name)
        parts = blob.parts
        if not parts:
            raise OnefoldRuntimeError(
                f"job {self.name!r} watches the gradient of a blob on which no loss depends"
            )
        if not blob.whole and all(piece is None for _, piece in parts):
            self.accumulation.use_whole()  # a value that pieces have in common is given once
        self._layouts.append(blob.first.meta)
        everywhere = session.devices.everywhere(session.devices.main_tag())
        return {key: global_to_global(x, everywhere, broadcast) for key, x in parts.items()}

    def _backward(self) -> None:
        for loss in self._losses:
            count = sum(part.numel() for part in loss.parts.values())
            for part in loss.parts.values():
                div(sum_op(part), count).backward()
        for name, regularizer in self._penalties.items():
            tensor = self.used[name].tensor
            if tensor.requires_grad:
                regularizer.penalty(tensor).backward()

    # What is kept.

    def state(self) -> dict[str, object]:
        """What training keeps besides the variables."""
        state = self.graph.state_dict()
        return {key: value for key, value in state.items() if key != "variables"}

    def restore(self, state: dict[str, object]) -> None:
        """Go on from what `state` gave."""
        graph = self.graph
        graph.load_state_dict({**state, "variables": graph.state_dict()["variables"]})

    # What the function says while it is traced.

    def use(
        self, variable: Variable, model_name: str | None, regularizer: Regularizer | None
    ) -> None:
        """Hear that the function uses a variable."""
        self.used[variable.name] = variable
        if model_name == "bias":
            self._secondary.add(variable.name)
        if regularizer is not None:
            self._penalties[variable.name] = regularizer

    def unique_name(self, kind: str) -> str:
        """A name for a layer that has none."""
        number = self._unnamed.get(kind, 0)
        self._unnamed[kind] = number + 1
        return f"{kind}_{number}"

    def add_losses(self, losses: Sequence[Blob]) -> None:
        """Train with these losses, too."""
        if not self.trains:
            raise OnefoldRuntimeError(
                f"job {self.name!r} has a loss, but is not a training job; decorate it with "
                '@flow.global_function(type="train")'
            )
        self._losses += losses

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Update with this optimizer. Raises OnefoldRuntimeError for a second one."""
        if self._graph is None and self._optimizer is not None:
            raise OnefoldRuntimeError(f"job {self.name!r} minimizes twice; give all losses at once")
        self._optimizer = optimizer

    def watch(self, blob: Blob, handler: Callable[[Result], object], gradient: bool) -> None:
        """Hand the value of a blob, or of its gradient, to a function in every call."""
        if not gradient:
            self._watched.append((blob, handler))
            return
        self.accumulation.use_whole()  # a gradient is that of the whole loss
        grads = Blob({}, blob.variable)

        def note(key: Key) -> Callable[[Tensor], None]:
            return lambda grad: grads.parts.__setitem__(key, grad)

        for key, part in blob.parts.items():
            register_hook(part, note(key))
        if self._graph is not None:
            self._watched.append((grads, handler))


class _Variables(Module):
    """The variables of a job, for its graph."""

    def __init__(self, variables: dict[str, Variable]) -> None:
        super().__init__()
        for name, variable in variables.items():
            if variable.tensor.requires_grad:
                setattr(self, name, variable.tensor)
            else:
                self.register_buffer(name, variable.tensor)


@Graph.with_dynamic_input_shape(size=_MAX_SHAPES)
class _JobGraph(Graph):
    def __init__(self, job: Job) -> None:
        super().__init__()
        self.variables = _Variables(job.used)
        self.job = job

    @property
    def name(self) -> str:
        return self.job.name

    def _check_inputs(self, form: object, metas: Sequence[Meta]) -> None:
        pass  # placeholders check them, and lists of lists may have another length in each call

    def build(self, given: Sequence[Parts]) -> tuple[object, list[Parts]]:
        return self.job._run(given, self.job.devices())


def _placeholder(job: str, parameter: inspect.Parameter) -> Placeholder:
    for found in (parameter.annotation, parameter.default):
        if isinstance(found, Placeholder):
            return found.named(parameter.name)
    raise OnefoldTypeError(
        f"argument {parameter.name!r} of job {job!r} has no definition; annotate it, such as "
        f"{parameter.name}: tp.Numpy.Placeholder((100, 1, 28, 28), dtype=flow.float)"
    )
