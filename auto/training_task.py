"""Training task: the model, loss, optimizer and batch that strategies are searched for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from ..engine.meta import Meta
from ..engine.ops.creation import empty
from ..engine.tensor import Tensor
from ..nn.module import Module
from ..optim.optimizer import Optimizer
from .strategy import Strategy, TrainingStep


@dataclass(frozen=True)
class Task:
    """What is searched for: a model, its loss and optimizer, and the batch of a step."""

    build_model: Callable[[], Module]
    loss: Callable[..., Tensor]
    optimizer: Callable[..., Optimizer]
    batch: tuple[Meta, ...]  # of the whole batch, local
    amp: str | None
    device: str

    def inputs(self, rows: int) -> list[Tensor]:
        """Tensors without data for so many rows of the batch; in a `planning` block."""
        shapes = [(rows, *meta.shape[1:]) for meta in self.batch]
        pairs = zip(shapes, self.batch, strict=True)
        return [empty(*shape, dtype=meta.dtype, device="meta") for shape, meta in pairs]

    @property
    def rows(self) -> int:
        """The size of dim 0 of the whole batch."""
        return self.batch[0].shape[0]

    @property
    def tokens(self) -> int:
        """The tokens of a step: numbers, or vectors at positions; of other inputs the rows."""
        first = self.batch[0]
        if not first.dtype.is_floating_point:
            return prod(first.shape)
        return prod(first.shape[:2]) if len(first.shape) == 3 else self.rows

    def step(self, strategy: Strategy, model: Module, rows: int) -> TrainingStep:
        """The compiled step of a model, laid out here, for so many rows; in a `planning` block."""
        strategy.apply(model)
        step = strategy.graph(model, self.loss, self.optimizer(model.parameters()))
        step._compile(*strategy.place(*self.inputs(rows)))
        return step
