"""GradientReducer: sums gradients over ranks in buckets, while backward makes the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

from ...engine import interpreter
from ...engine.grad_attributes import register_post_accumulate_grad_hook
from ...engine.leaf_hooks import LeafCalls, LeafHookHandle, running_pass
from ...engine.tensor import Tensor
from ...optim.gradient_layouts import begin_aligned, with_gradients
from .grad_bucket import Hook, by_dtype, combined, takes_hook


class _Round:
    """The buckets of one backward pass."""

    def __init__(self, buckets: int, hook: tuple[Any, Hook] | None) -> None:
        self.waiting: list[list[Tensor]] = [[] for _ in range(buckets)]
        self.hook = hook
        self.hooked = 0
        self.left = set(range(buckets))
        self.ends: list[tuple[list[Tensor], Callable[[], list[Tensor]]]] = []

    def start(self, index: int) -> None:
        """Start the reduction of a bucket."""
        params, grads = with_gradients(self.waiting[index])
        self.waiting[index] = []
        self.left.discard(index)
        if self.hook is not None:
            self._combine([param for param in params if takes_hook(param)])
            params, grads = with_gradients([param for param in params if not takes_hook(param)])
        self.ends.append((params, begin_aligned(params, grads)))

    def _combine(self, params: list[Tensor]) -> None:
        """Let the hook combine gradients over the ranks."""
        assert self.hook is not None
        state, hook = self.hook
        groups = by_dtype(params)
        for number, group in enumerate(groups, 1):
            last = number == len(groups) and not self.left
            made = combined(hook, state, self.hooked, group, last)
            self.hooked += 1
            self.ends.append((group, partial(list, made)))

    def finish(self) -> None:
        """Start the remaining buckets, if some parameters had no gradient, and wait for all."""
        self.left = {index for index, params in enumerate(self.waiting) if params}
        for index in sorted(self.left):
            self.start(index)
        for params, end in self.ends:
            for param, grad in zip(params, end(), strict=True):
                param.grad = grad


_reducers: WeakSet[GradientReducer] = WeakSet()


def _retire(params: Iterable[Tensor]) -> None:
    for each in list(_reducers):
        each.retire(params)


class GradientReducer:
    """Gives the gradients of parameters their parameters' layouts, while backward runs.

    Buckets have up to `bucket_bytes`, the last parameters first, since backward reaches those
    first. All ranks replay one tape, so that they start the buckets in one order. It does so for
    `owner`, a module that has these parameters, and after its end until another reducer has them.
    """

    def __init__(self, owner: object, params: Iterable[Tensor], bucket_bytes: int) -> None:
        params = list(params)
        _retire(params)
        self._owner = ref(owner)
        self.enabled = True
        self.hook: tuple[Any, Hook] | None = None  # its state comes first
        self.instead: Callable[[], None] | None = None  # what to call for each gradient
        self.buckets: list[list[Tensor]] = [[]]
        self._hooks: list[LeafHookHandle] = []
        size = 0
        for param in reversed(params):
            if self.buckets[-1] and size + param.meta.nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(param)
            size += param.meta.nbytes
            self._hooks.append(register_post_accumulate_grad_hook(param, self._ready))
        self._bucket_of = {id(p): i for i, bucket in enumerate(self.buckets) for p in bucket}
        self.rounds: WeakKeyDictionary[LeafCalls, _Round] = WeakKeyDictionary()
        _reducers.add(self)

    def retire(self, params: Iterable[Tensor]) -> None:
        """Leave parameters to another reducer, if its module is gone and it has some of them."""
        if self._owner() is None and any(id(param) in self._bucket_of for param in params):
            for hook in self._hooks:
                hook.remove()

    def _ready(self, param: Tensor) -> None:
        """Called when a backward pass has computed the gradient of a parameter."""
        if interpreter.capturing():
            return
        if self.instead is not None:
            self.instead()
            return
        if not self.enabled:
            return
        running = running_pass()
        if running not in self.rounds:
            self.rounds[running] = _Round(len(self.buckets), self.hook)
            running.at_end(self.rounds[running].finish)
        now, index = self.rounds[running], self._bucket_of[id(param)]
        now.waiting[index].append(param)
        if len(now.waiting[index]) == len(self.buckets[index]):
            now.start(index)
