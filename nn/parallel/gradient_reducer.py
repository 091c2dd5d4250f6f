"""GradientReducer: sums gradients over ranks in buckets, while backward makes the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...engine import interpreter
from ...engine.grad_attributes import register_post_accumulate_grad_hook
from ...engine.leaf_hooks import LeafCalls, running_pass
from ...engine.tensor import Tensor
from ...optim.gradient_layouts import begin_aligned, with_gradients


class _Started(NamedTuple):
    """A bucket that is on its way."""

    params: list[Tensor]
    end: Callable[[], list[Tensor]]


class GradientReducer:
    """Gives the gradients of parameters their parameters' layouts, while backward runs.

    Buckets have up to `bucket_bytes`, the last parameters first, since backward reaches those
    first. All ranks replay one tape, so that they start the buckets in one order.
    """

    def __init__(self, params: Iterable[Tensor], bucket_bytes: int) -> None:
        self.enabled = True
        self.buckets: list[list[Tensor]] = [[]]
        size = 0
        for param in reversed(list(params)):
            if self.buckets[-1] and size + param.meta.nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(param)
            size += param.meta.nbytes
            register_post_accumulate_grad_hook(param, self._ready)
        self._bucket_of = {id(p): i for i, bucket in enumerate(self.buckets) for p in bucket}
        self._pass: LeafCalls | None = None
        self._waiting: list[list[Tensor]] = []
        self._started: list[_Started] = []

    def _ready(self, param: Tensor) -> None:
        """Hear that a backward pass has made the gradient of a parameter."""
        if not self.enabled or interpreter.capturing():
            return
        running = running_pass()
        if running is not self._pass:  # one that failed before left something, perhaps
            self._pass = running
            self._waiting = [[] for _ in self.buckets]
            self._started = []
            running.at_end(self._end)
        index = self._bucket_of[id(param)]
        self._waiting[index].append(param)
        if len(self._waiting[index]) == len(self.buckets[index]):
            self._start(index)

    def _start(self, index: int) -> None:
        params, grads = with_gradients(self._waiting[index])
        self._waiting[index] = []
        self._started.append(_Started(params, begin_aligned(params, grads)))

    def _end(self) -> None:
        """Reduce what is left, in buckets with parameters that had no gradient, and wait."""
        for index, params in enumerate(self._waiting):
            if params:
                self._start(index)
        started, self._started, self._pass = self._started, [], None
        for params, end in started:
            for param, grad in zip(params, end(), strict=True):
                param.grad = grad
