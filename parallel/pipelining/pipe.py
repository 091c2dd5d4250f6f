"""Pipe: a model that `pipeline` cut into stages, each of them a module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from ...comm.process_groups import ProcessGroup
from ...engine.argument_types import DeviceLike
from ...engine.meta import Meta
from ...engine.tensor import Tensor
from ...errors import OnefoldTypeError, OnefoldValueError, warn
from ...nn.module import Module
from .pipeline_stage import PipelineStage
from .stage_messages import Form, listed
from .stage_tracing import (
    Held,
    Made,
    Named,
    SplitPoint,
    StageTrace,
    part_of,
    structure,
    traced,
)


@dataclass(frozen=True, slots=True)
class PipeInfo:
    """What `build_stage` must know of a pipe."""

    num_stages: int


class StageModule(Module):
    """The calls of one stage, with the modules and parameters that they use.

    Its names are those of the model. A stage takes what the one before it returns; the first one
    takes the arguments of the model, of the shapes of the example.
    """

    def __init__(self, model: Module, trace: StageTrace, stage: int, example: Any) -> None:
        super().__init__()
        self._part = part = part_of(trace, stage, example)
        for call in part.calls:
            if call.path:
                self._attach(call.path, model.get_submodule(call.path))
        leaves = tree_leaves([*(call.given for call in part.calls), part.result])
        names = dict.fromkeys(leaf.name for leaf in leaves if isinstance(leaf, Named))
        for name in names:
            self._attach_tensor(model, name)
        for leaf in leaves:
            if isinstance(leaf, Held):
                held = trace.held[leaf.index]
                self.register_buffer(_held_name(leaf), held, persistent=False)
        self.training = model.training

    def _found(self, path: str) -> Module | None:
        try:
            return self.get_submodule(path) if path else None
        except AttributeError:
            return None

    def _attach(self, path: str, module: Module) -> None:
        """Make a module of the model, or an empty one, a submodule of that path."""
        if self._found(path) is None:
            owner, _, name = path.rpartition(".")
            if owner:
                self._attach(owner, Module())
            self._at(owner).add_module(name, module)

    def _at(self, path: str) -> Module:
        return self.get_submodule(path) if path else self

    def _attach_tensor(self, model: Module, path: str) -> None:
        owner, _, name = path.rpartition(".")
        if owner:
            self._attach(owner, Module())
        source = model.get_submodule(owner) if owner else model
        target = self._at(owner)
        if name in target._parameters or name in target._buffers:
            return
        if name in source._parameters:
            target.register_parameter(name, source._parameters[name])
        else:
            keeps = name not in source._non_persistent_buffers_set
            target.register_buffer(name, source._buffers[name], persistent=keeps)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        given = self._given(args, kwargs)
        values = dict(given)

        def value(leaf: Any) -> Any:
            if isinstance(leaf, Made):
                return values[leaf.number]
            if isinstance(leaf, Named):
                owner, _, name = leaf.name.rpartition(".")
                return getattr(self._at(owner), name)
            if isinstance(leaf, Held):
                return getattr(self, _held_name(leaf))
            return leaf

        for call in self._part.calls:
            own_args, own_kwargs = tree_map(value, call.given)
            if call.makes_new:
                own_args = _moved(own_args, given)
            function: Callable[..., Any] = call.function or self.get_submodule(call.path)
            made = function(*own_args, **own_kwargs)
            leaves = [leaf for leaf in tree_leaves(made) if isinstance(leaf, Tensor)]
            if len(leaves) != len(call.results):
                raise OnefoldValueError(
                    f"stage {self._part.index}: {call.path or call} gave {len(leaves)} tensors, "
                    f"but {len(call.results)} when pipeline() traced the model"
                )
            values.update(zip(call.results, leaves, strict=True))
        if self._part.is_last:
            return tree_map(value, self._part.result)
        outputs = tuple([values[number] for number in self._part.gives])
        return outputs if len(outputs) > 1 else outputs[0]

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int, Tensor]:
        """The tensors that a call is given, by their numbers."""
        if self._part.example is None:
            return dict(zip(self._part.takes, args, strict=True))
        leaves, nesting = structure(args, kwargs)
        wanted, wanted_nesting = self._part.example
        found = [_form_of(leaf) for leaf in leaves]
        if nesting != wanted_nesting or found != wanted:
            raise OnefoldValueError(
                f"stage 0 was given {_text(found)}, but pipeline() traced the model with "
                f"{_text(wanted)}: give step() a batch that is cut into micro-batches of that form "
                "and the same arguments, or call pipeline() with other mb_args and mb_kwargs"
            )
        return dict(enumerate(leaf for leaf in leaves if isinstance(leaf, Tensor)))

    def __str__(self) -> str:
        return str(self._part)

    __repr__ = __str__


def _held_name(leaf: Held) -> str:
    return f"_held_{leaf.index}"


def _moved(args: tuple[Any, ...], given: Mapping[int, Tensor]) -> tuple[Any, ...]:
    """The arguments of a creation function, on the device of what the stage is given."""
    meta, *others = args
    device = next(iter(given.values())).device
    if meta.placement is None and isinstance(device, torch.device):
        meta = Meta.of(meta.shape, meta.dtype, device=device)
    return (meta, *others)


def _form_of(leaf: Any) -> Any:
    return Form(tuple(leaf.shape), leaf.dtype) if isinstance(leaf, Tensor) else leaf


def _text(forms: list[Any]) -> str:
    if all(isinstance(form, Form) for form in forms):
        return listed(forms)
    return ", ".join(str(form) if isinstance(form, Form) else repr(form) for form in forms)


class Pipe(Module):
    """A model in stages, whose modules are those of the model. Calling it runs all of them."""

    def __init__(self, stages: list[StageModule]) -> None:
        super().__init__()
        self.num_stages = len(stages)
        for index, stage in enumerate(stages):
            self.add_module(f"submod_{index}", stage)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        result = self.get_stage_module(0)(*args, **kwargs)
        for index in range(1, self.num_stages):
            given = result if isinstance(result, tuple) else (result,)
            result = self.get_stage_module(index)(*given)
        return result

    def get_stage_module(self, stage_idx: int) -> StageModule:
        """The module of a stage. Raises OnefoldValueError for an index out of range."""
        if not 0 <= stage_idx < self.num_stages:
            raise OnefoldValueError(
                f"stage_idx must be 0 to {self.num_stages - 1}, but is {stage_idx}"
            )
        found = self.get_submodule(f"submod_{stage_idx}")
        assert isinstance(found, StageModule)
        return found

    def build_stage(
        self, stage_index: int, device: DeviceLike, group: ProcessGroup | None = None
    ) -> PipelineStage:
        """The stage of this index for a schedule; its module is moved to `device`."""
        return build_stage(
            self.get_stage_module(stage_index), stage_index, self.info(), device, group
        )

    def info(self) -> PipeInfo:
        """What `build_stage` must know."""
        return PipeInfo(self.num_stages)

    def print_readable(self) -> None:
        """Print the calls of the stages."""
        print(self)  # noqa: T201 (what it is for)

    def __str__(self) -> str:
        return "\n".join(str(self.get_stage_module(index)) for index in range(self.num_stages))

    __repr__ = __str__


def build_stage(
    stage_module: Module,
    stage_index: int,
    pipe_info: PipeInfo,
    device: DeviceLike,
    group: ProcessGroup | None = None,
) -> PipelineStage:
    """A stage of a pipe for a schedule; its module is moved to `device`."""
    module = stage_module.to(device)
    return PipelineStage(module, stage_index, pipe_info.num_stages, device, group=group)


def pipeline(
    module: Module,
    mb_args: tuple[Any, ...],
    mb_kwargs: dict[str, Any] | None = None,
    split_spec: Mapping[str, SplitPoint] | None = None,
    split_policy: object = None,
) -> Pipe:
    """Cut a model into stages before or after the submodules that `split_spec` names.

    The model runs once, on the example of one micro-batch, to see which submodules and ops it
    calls. Submodules without a cut inside are called as they are in each step; ops between them are
    called with the sizes and numbers of the example, so micro-batches must have its shapes.
    `pipe_split()` in the code of a forward cuts, too. What later stages need passes through those
    between. Raises OnefoldValueError for names that the model does not have or call,
    OnefoldRuntimeError for changes in place, buffers that are replaced and random numbers between
    submodules, and OnefoldTypeError for a `split_policy`.

    >>> import onefold as flow
    >>> model = flow.nn.Sequential(flow.nn.Linear(4, 8), flow.nn.ReLU(), flow.nn.Linear(8, 2))
    >>> pipe = pipeline(model, (flow.ones(2, 4),), split_spec={"2": SplitPoint.BEGINNING})
    >>> print(pipe)
    stage 0, of the arguments:
      %1 = 0(%0)
      %2 = 1(%1)
      gives %2
    stage 1, of %2:
      %3 = 2(%2)
      gives the result
    >>> [name for name, _ in pipe.get_stage_module(1).named_parameters()]
    ['2.weight', '2.bias']
    """
    if not isinstance(module, Module):
        raise OnefoldTypeError(f"pipeline needs an onefold Module, but got {type(module).__name__}")
    if split_policy is not None:
        raise OnefoldTypeError(
            "pipeline takes no split_policy, which is a function of torch's graphs: give "
            "split_spec the names of submodules, as in {'layers.1': SplitPoint.BEGINNING}, or "
            "call pipe_split() in the forward"
        )
    args, kwargs = tuple(mb_args), dict(mb_kwargs or {})
    trace = traced(module, args, kwargs, split_spec or {})
    leaves, nesting = structure(args, kwargs)
    example = [_form_of(leaf) for leaf in leaves], nesting
    stages = [StageModule(module, trace, index, example) for index in range(trace.stage + 1)]
    _warn_of_shared(stages)
    for stage in stages[:-1]:
        if not stage._part.gives:
            raise OnefoldValueError(
                f"pipeline: nothing that stage {stage._part.index} or an earlier one makes is used "
                "later: cut the model elsewhere"
            )
    return Pipe(stages)


def _warn_of_shared(stages: list[StageModule]) -> None:
    """Warn of parameters of several stages: each stage then has a copy on its own rank."""
    found: dict[int, tuple[str, list[int]]] = {}
    for stage in stages:
        for name, param in stage.named_parameters():
            found.setdefault(id(param), (name, []))[1].append(stage._part.index)
    for name, indices in found.values():
        if len(indices) > 1:
            warn(
                f"pipeline: {name} is a parameter of the stages {indices}. Each of their ranks has "
                "a copy: after step(), add up its gradients with "
                "flow.distributed.all_reduce(param.grad, group=...) over these ranks",
                UserWarning,
            )
