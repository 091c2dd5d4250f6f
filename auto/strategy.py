"""Strategy: how a training step is laid over ranks, as data that is applied, printed and saved."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from ..engine.convert import to_global
from ..engine.placement import Placement
from ..engine.sbp import NdSbp, Sbp, broadcast, split
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError
from ..graph.graph_config import GraphModule
from ..graph.schedules.named_schedules import schedule_named
from ..nn.graph import Graph
from ..nn.module import Module
from ..optim.optimizer import Optimizer
from ..parallel.layout_plan import COLUMN, REPLICATE, ROW, VOCAB, Plan, Style
from ..parallel.tensor_parallel import tensor_parallel
from .strategy_code import code_of

M = TypeVar("M", bound=Module)

_LATER = {"layout_search", "offloaded", "saved"}  # fields that older files do not have

STYLES = {style.name: style for style in (COLUMN, ROW, VOCAB, REPLICATE)}


def style_named(name: str) -> Style:
    """A style of `onefold.parallel`, or that which splits a dim and has no hooks: "S0", "S1" ..."""
    if name in STYLES:
        return STYLES[name]
    layout = split(int(name.removeprefix("S")))
    return Style(name, layout, layout)


def style_of(sbp: Sbp) -> str:
    """The name of the style of a parameter that is laid out like this, without hooks."""
    return sbp.short if sbp.is_split else REPLICATE.name


@dataclass(frozen=True)
class Strategy:
    """Stages, the axes of their meshes, micro-batches, and what is split, kept or recomputed.

    The ranks 0 to `size - 1` are meshes of `data` x `tensor` ranks, one after the other. A stage is
    the modules of one entry of `parts` on a mesh; with an interleaved schedule a mesh has several
    stages. `str(strategy)` is Python code that does by hand what `apply`, `place` and `graph` do.
    """

    size: int
    data: int = 1  # ranks of a mesh that work on parts of the batch
    tensor: int = 1  # ranks that work on parts of the weights
    # The names of the modules of each stage. Without a schedule there is one part, the whole model.
    parts: tuple[tuple[str, ...], ...] = ((),)
    inputs: tuple[int, ...] = ()  # for each tensor of the batch the stage that reads it
    table: tuple[tuple[str, str], ...] = ()  # patterns of names, and the style of `parallel`
    sequence_dim: int | None = None  # of activations; split between the layers that split weights
    layout_search: bool = False  # whether the layouts of ops along the tensor axis are searched
    micro_batches: int = 1
    schedule: str | None = None  # None: no stages, micro-batches one after the other
    zero: int = 0  # the stage of ZeRO
    recomputed: tuple[str, ...] = ()  # the modules whose activations backward recomputes
    saved: tuple[tuple[str, ...], ...] = ()  # the activations that each of these saves nevertheless
    offloaded: tuple[str, ...] = ()  # the modules whose activations wait in host memory
    amp: str | None = None  # the dtype of mixed precision
    device: str = "cuda"

    @property
    def mesh(self) -> tuple[int, ...]:
        """The sizes of the axes that a mesh has: those of more than one rank, at least one."""
        return tuple(n for n in (self.data, self.tensor) if n > 1) or (1,)

    @property
    def meshes(self) -> int:
        """How many meshes there are."""
        return self.size // prod(self.mesh)

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Where each stage is."""
        ranks = np.arange(self.size).reshape(self.meshes, *self.mesh)
        found = [Placement(self.device, each) for each in ranks]
        if self.schedule is None:
            return tuple(found)
        turns = schedule_named(self.schedule).rank_of(len(self.parts), self.meshes)
        return tuple(found[mesh] for mesh in turns)

    @property
    def whole(self) -> NdSbp:
        """The layout of what every rank of a mesh has."""
        return (broadcast,) * len(self.mesh)

    @property
    def batch(self) -> NdSbp:
        """The layout of the batch."""
        if self.data == 1:
            return self.whole
        return (split(0), *self.whole[1:])

    def on(self, device: str) -> Strategy:
        """The same on devices of another type, such as "cpu"."""
        return replace(self, device=device)

    def apply(self, model: M) -> M:
        """Lay a model out, in place; it returns the model.

        A local model is read on the first rank of each placement. One that was made with
        `device="meta"` takes no memory, and is filled shard by shard afterwards. A parameter that
        stages share is on the one of the module that has it first, which sends the others a copy
        once in each step. Raises
        OnefoldValueError for a model without a module or parameter that the strategy names; then
        nothing is changed.
        """
        self._check(model)
        stages = self.placements
        stage_of = {name: stage for stage, names in enumerate(self.parts) for name in names}

        def placement_of(name: str, _: Tensor) -> Placement:
            return stages[next((stage_of[m] for m in _modules_of(name) if m in stage_of), 0)]

        model.to_global(placement_of, self.whole)
        if self.schedule is not None:
            for name, stage in stage_of.items():
                model.get_submodule(name).to(GraphModule).set_stage(stage, stages[stage])
        if self.tensor > 1:
            tensor_parallel(model, plan=self.plan, sequence_dim=self.sequence_dim)
        for name, saved in self.checkpointed.items():
            view = model.get_submodule(name).to(GraphModule)
            view.activation_checkpointing = True
            if saved:
                view.saved_activations = saved
        for name in self.offloaded:
            model.get_submodule(name).to(GraphModule).activation_offloading = True
        return model

    @property
    def checkpointed(self) -> dict[str, tuple[str, ...]]:
        """By the modules of `recomputed`, the activations that they save nevertheless."""
        saved = self.saved or ((),) * len(self.recomputed)
        return dict(zip(self.recomputed, saved, strict=True))

    @property
    def plan(self) -> Plan:
        """The table of `tensor_parallel`."""
        return Plan({pattern: style_named(style) for pattern, style in self.table})

    def _check(self, model: Module) -> None:
        if not isinstance(model, Module):
            raise OnefoldTypeError(
                f"a strategy is applied to an onefold.nn.Module, but got {type(model).__name__}"
            )
        known = {name for name, _ in model.named_modules()}
        named = [name for part in self.parts for name in part]
        missing = [
            name for name in (*named, *self.recomputed, *self.offloaded) if name not in known
        ]
        if missing:
            raise OnefoldValueError(
                f"the strategy is for a model with the modules {', '.join(missing[:4])}, which "
                f"{type(model).__name__} has not; it has {', '.join(sorted(known - {''})[:8])}. "
                "Apply it to the model that it was searched for"
            )
        if self.tensor > 1:
            self.plan.styles(dict(model.named_parameters(remove_duplicate=False)))

    def place(self, *batch: Tensor) -> tuple[Tensor, ...]:
        """The tensors of a batch as the step takes them: on their stage, dim 0 split over `data`.

        A local tensor is the whole batch, read on the first rank of its placement.
        """
        if len(batch) != len(self.inputs):
            raise OnefoldValueError(
                f"the strategy is for a batch of {len(self.inputs)} tensors, but got {len(batch)}"
            )
        stages = self.placements
        return tuple(
            to_global(to_global(x, stages[stage], self.whole), sbp=self.batch)
            for x, stage in zip(batch, self.inputs, strict=True)
        )

    def graph(
        self, model: Module, loss: Callable[..., Tensor], optimizer: Optimizer
    ) -> TrainingStep:
        """The training step of a model that was laid out by `apply`.

        `loss(model, *batch)` is its mean loss. A call takes a batch that `place` gave.
        """
        return TrainingStep(self, model, loss, optimizer)

    def __str__(self) -> str:
        return code_of(self)

    @property
    def summary(self) -> str:
        """One line."""
        axes = {"pipeline": self.meshes, "data": self.data, "tensor": self.tensor}
        sizes = [f"{name} {size}" for name, size in axes.items() if size > 1]
        words = [" x ".join(sizes) or "one rank"]
        if self.schedule is not None and len(self.parts) > 1:
            words.append(f"{self.schedule} of {len(self.parts)} stages")
        if self.sequence_dim is not None:
            words.append("sequence split")
        if self.layout_search:
            words.append("layouts searched")
        if self.micro_batches > 1:
            words.append(f"{self.micro_batches} micro-batches")
        if self.zero:
            words.append(f"ZeRO {self.zero}")
        part = sum(map(bool, self.saved))
        if len(self.recomputed) > part:
            words.append(f"{len(self.recomputed) - part} recomputed")
        if part:
            words.append(f"{part} recomputed in part")
        if self.offloaded:
            words.append(f"{len(self.offloaded)} offloaded")
        return ", ".join(words)

    def save(self, path: str | Path) -> None:
        """Write the strategy to a JSON file."""
        Path(path).write_text(json.dumps(asdict(self), indent=1) + "\n")


class TrainingStep(Graph):
    """One training step under a strategy."""

    def __init__(
        self,
        strategy: Strategy,
        model: Module,
        loss: Callable[..., Tensor],
        optimizer: Optimizer,
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.add_optimizer(optimizer)
        self.config.set_gradient_accumulation_steps(strategy.micro_batches)
        if strategy.schedule is not None:
            self.config.set_schedule(strategy.schedule)
        if strategy.zero:
            self.config.enable_zero(True, stage=strategy.zero)
        if strategy.layout_search:
            self.config.enable_auto_parallel(axis=len(strategy.mesh) - 1)
        if strategy.amp is not None:
            self.config.enable_amp(True, dtype=getattr(torch, strategy.amp))

    def build(self, *batch: Tensor) -> Tensor:
        loss = self.loss(self.model, *batch)
        loss.backward()
        return loss


def load(path: str | Path) -> Strategy:
    """The strategy that `save` wrote.

    Raises OnefoldValueError for a file that is none.
    """
    try:
        content = json.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise OnefoldValueError(f"strategy file {path} cannot be read: {error}") from error
    known = {field.name for field in fields(Strategy)}
    if not isinstance(content, Mapping) or (set(content) ^ known) - _LATER:
        wrong = sorted(set(content) ^ known) if isinstance(content, Mapping) else ["all"]
        raise OnefoldValueError(
            f"{path} is not a strategy: fields that are missing or unknown are {', '.join(wrong)}"
        )
    return Strategy(**{name: _tuples(value) for name, value in content.items()})


def _modules_of(name: str) -> Iterator[str]:
    """The modules that a parameter or buffer is in, the innermost first.

    >>> list(_modules_of("layers.0.weight"))
    ['layers.0', 'layers']
    """
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def _tuples(value: Any) -> Any:
    """Lists as tuples, at every depth."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
