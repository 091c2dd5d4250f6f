"""ZeRO without a graph: each rank updates its shards of parameters and keeps only their state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

from ..engine import boxing, interpreter
from ..engine.convert import box
from ..engine.grad_attributes import register_post_accumulate_grad_hook
from ..engine.inplace import take
from ..engine.leaf_hooks import LeafCalls, running_pass
from ..engine.meta import Meta
from ..engine.tensor import Tensor, from_shards
from ..graph.zero import split_layout
from .gradient_layouts import aligned


class _Layout(NamedTuple):
    """A decision about a parameter that was laid out as `whole`."""

    whole: Meta
    shards: Meta


class ZeroRedundancy:
    """The shards in which an optimizer updates parameters that several ranks have whole.

    In stage 1 gradients become whole on every rank, as without ZeRO. In stage 2 each is reduced to
    shards as soon as backward has made it. A parameter's layout is decided when it has its first
    gradient (`graph.zero.split_layout`), and stays.
    """

    def __init__(self, stage: int, shard_min_size: int) -> None:
        self.stage = stage
        self.shard_min_size = shard_min_size
        self.active = True
        self._layouts: dict[Tensor, _Layout] = {}
        self._watched: set[Tensor] = set()
        # By the backward passes that run: what waits for the last gradient.
        self._arriving: WeakKeyDictionary[LeafCalls, Callable[[], object]] = WeakKeyDictionary()

    def watch(self, params: Iterable[Tensor]) -> None:
        """Reduce the gradients of parameters while backward runs, where the stage says so."""
        for param in params:
            if self.stage == 2 and param not in self._watched and param.requires_grad:
                self._watched.add(param)
                register_post_accumulate_grad_hook(param, self._reduce)

    def _reduce(self, param: Tensor) -> None:
        """Start to reduce a gradient, when the one before has arrived: so two are there at most."""
        grad = param.grad
        if not self.active or grad is None or grad.is_local or interpreter.capturing():
            return
        shards = grad.meta.like(nd_sbp=self.layout(param, grad).nd_sbp)
        if shards.nd_sbp == param.sbp or grad.meta is shards:
            return
        running = running_pass()
        before = self._arriving.get(running)
        if before is None:
            running.at_end(partial(self._arrived, running))
        else:
            before()
        end = boxing.start(boxing.plan(grad.meta, shards), grad.shards, op="gradients")

        def arrive() -> None:
            reduced = from_shards(end(), shards)
            reduced.shared = True
            param.grad = reduced

        self._arriving[running] = arrive

    def _arrived(self, running: LeafCalls) -> None:
        self._arriving.pop(running)()

    def layout(self, param: Tensor, grad: Tensor) -> Meta:
        """How a parameter is laid out for its update."""
        found = self._layouts.get(param)
        if found is None or found.whole is not param.meta:
            nd_sbp = split_layout(param.meta, self.shard_min_size, grad.meta)
            found = self._layouts[param] = _Layout(param.meta, param.meta.like(nd_sbp=nd_sbp))
        return found.shards

    def aligned(self, params: Sequence[Tensor], grads: Sequence[Tensor]) -> list[Tensor]:
        """`aligned`, to shards in stage 2."""
        layouts = [self.layout(*pair) for pair in zip(params, grads, strict=True)]
        if self.stage == 1:
            return aligned(params, grads)
        return aligned([from_shards((), meta) for meta in layouts], grads)

    def split(
        self, params: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Parameters and aligned gradients as they are updated: in shards."""
        parts, part_grads = [], []
        for param, grad in zip(params, grads, strict=True):
            shards = self.layout(param, grad)
            part = param
            if shards is not param.meta:
                part, grad = _boxed(param, shards), _boxed(grad, shards)
            parts.append(part)
            part_grads.append(grad)
        return parts, part_grads

    def gather(self, params: Sequence[Tensor], parts: Sequence[Tensor]) -> tuple[()]:
        """Give parameters the values of their updated parts, whole on every rank."""
        split = [pair for pair in zip(params, parts, strict=True) if pair[0] is not pair[1]]
        ends = [
            boxing.start(boxing.plan(part.meta, param.meta), part.shards, op="zero")
            for param, part in split
        ]
        for (param, _), end in zip(split, ends, strict=True):
            take(param, from_shards(end(), param.meta))
        return ()


def _boxed(tensor: Tensor, target: Meta) -> Tensor:
    target = target.like(dtype=tensor.dtype)
    made = from_shards(box(tensor, target).shards, target)
    made.shared = True
    return made
