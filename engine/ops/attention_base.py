"""What the ops of attention share: their arithmetic, what they keep, and how gradients are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import interpreter
from ..meta import Meta
from ..op import Op
from ..signature import Axis
from ..tensor import Tensor


class Attends(Op):
    """One of the ops y = softmax(q k^T * scale ...) v"""

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        q, k = inputs[:2]
        assert q is not None
        assert k is not None
        return 2.0 * k.shape[-2] * (outputs[0].numel + q.numel)


class Keeping(Attends):
    """One that gives the logarithms of the softmax's sums besides, for its gradient alone"""

    num_outputs = 2
    saves_output = True

    def vjp(
        self,
        needs: Sequence[object],
        dy: tuple[Tensor | None, ...],
        y: tuple[Tensor, Tensor],
        *args: Any,
    ) -> Any:
        assert dy[0] is not None
        # What is made at once cannot be differentiated again, and leaves a mask out.
        if interpreter.grad_enabled or any(needs[3:]):
            return self.gradients_in_parts(dy[0], *args)
        return self.gradients_at_once(dy[0], y, *args)

    def gradients_in_parts(self, dy: Tensor, *args: Any) -> Any:
        """Gradients for the inputs, by ops that have gradients themselves."""
        raise NotImplementedError

    def gradients_at_once(self, dy: Tensor, y: tuple[Tensor, Tensor], *args: Any) -> Any:
        """Gradients for q, k and v by one op."""
        raise NotImplementedError


class AttendsGrad(Op):
    """The gradients of one for q, k and v; its inputs are dy, q, k, v and others"""

    num_outputs = 3
    differentiable = False

    def infer(self, dy: Meta, q: Meta, k: Meta, v: Meta, *others: Any) -> tuple[Meta, ...]:
        return q, k, v

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        q, k, v = outputs
        rows = q.numel // max(q.shape[-1], 1)
        return 4.0 * rows * k.shape[-2] * (q.shape[-1] + v.shape[-1])


def logs_of(q: Meta, shape: Sequence[int]) -> Meta:
    """The logarithms of sums, of this shape."""
    return q.like(shape=shape, dtype=q.dtype if q.dtype is torch.float64 else torch.float32)


def heads_may_split(axis: Axis, q: Meta, k: Meta) -> bool:
    """Whether dim 1 may: not where query heads would be cut off from their keys."""
    return q.shape[1] == k.shape[1] or k.shape[1] % axis.parts == 0
