"""Steps of DistributedDataParallel in which each rank computes by itself.

Ranks have batches of any sizes and numbers, or use parameters of their own choice, so they run no
common program: a step computes with this rank's copies of the parameters, and gradients are summed
at the end of backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from weakref import WeakSet

import torch

from ...distributed import collectives
from ...distributed.world import world
from ...engine.convert import box, to_local
from ...engine.generator import default_generator
from ...engine.grad_mode import no_grad
from ...engine.leaf_hooks import LeafCalls, running_pass
from ...engine.sbp import partial_sum
from ...engine.tensor import Tensor, from_shards
from ...errors import OnefoldRuntimeError
from ..functional_call import functional_call
from ..module import Module
from .grad_bucket import by_dtype
from .gradient_reducer import GradientReducer
from .join import JoinHook, sum_over
from .local_batch import scaled

# How many calls of the generator a step is given: ranks draw different numbers of times.
_DRAWS = 1 << 16


class JoinedSteps(JoinHook):
    """The steps of one module in one Join: those with a batch, and those without one."""

    what = "Join"

    def __init__(self, module: Module, reducer: GradientReducer, by_all: bool) -> None:
        self._module = module
        self._reducer = reducer
        self._by_all = by_all
        self._shares = True  # as in torch, not after a step whose gradients are not summed
        self._passes: WeakSet[LeafCalls] = WeakSet()
        self._buffers = list(module.buffers())
        tensors = [*module.parameters(), *self._buffers]
        whole = all(x.is_global and all(sbp.is_broadcast for sbp in x.sbp) for x in tensors)
        placement = tensors[0].placement
        if not whole or any(x.placement is not placement for x in tensors):
            raise OnefoldRuntimeError(
                f"{self.what}: all parameters and buffers must be broadcast on one placement, "
                "since each rank computes by itself; move the module with to_global, or leave "
                f"{self.what} out"
            )
        if reducer.hook is not None:
            raise OnefoldRuntimeError(
                f"{self.what}: a module with a communication hook is not supported; leave one of "
                "them out"
            )
        assert placement is not None
        self._ranks = tuple(placement.flat_ranks)
        self._device = tensors[0].shards[0].device

    # With a batch.

    def forward(self, inputs: Any, kwargs: dict[str, Any], going: int | None, syncs: bool) -> Any:
        """The module's result for local inputs."""
        self._announce(syncs)
        self._shares = syncs
        self._reducer.enabled = False
        self._reducer.instead = self._gradient_arrived if syncs else None
        count = len(self._ranks) if self._by_all or going is None else going
        self._take_gradients_apart(count)
        held: dict[str, Tensor] = {}
        for name, param in self._module.named_parameters():
            own = to_local(param)
            held[name] = scaled(own, 1.0 / count) if own.requires_grad else own
        buffers = dict(self._module.named_buffers())
        held.update((name, to_local(buffer, copy=True)) for name, buffer in buffers.items())
        result = functional_call(self._module, held, inputs, kwargs)
        with no_grad():
            for name, buffer in buffers.items():
                buffer.copy_(from_shards(held[name].shards, buffer.meta))
        return result

    def _announce(self, syncs: bool) -> None:
        """Tell the ranks without a batch what comes."""
        self._share_buffers(own=True)
        sum_over([int(syncs)], self._ranks, self._device)

    @no_grad
    def _take_gradients_apart(self, count: int) -> None:
        """Give this rank its share of gradients of earlier steps, to which backward will add.

        Else one of the ranks has all of them, perhaps one that is done and sends none.
        """
        for param in [param for bucket in self._reducer.buckets for param in bucket]:
            grad = param.grad
            if grad is not None and all(sbp.is_broadcast for sbp in grad.sbp):
                parts = (partial_sum,) * len(grad.sbp)
                param.grad = from_shards((grad.shards[0] / count,), grad.meta.like(nd_sbp=parts))

    def _gradient_arrived(self) -> None:
        """A backward pass has a gradient: at its end all are summed."""
        running = running_pass()
        if running not in self._passes:
            self._passes.add(running)
            running.at_end(partial(self._sum_gradients, True))

    # Without a batch.

    def main_hook(self) -> None:
        self._share_buffers(own=False)
        (syncs,) = sum_over([0], self._ranks, self._device)
        self._shares = bool(syncs)
        if syncs:
            self._sum_gradients(own=False)

    @no_grad
    def post_hook(self, is_last_joiner: bool) -> None:
        root = self._last_of(is_last_joiner)
        tensors = [*self._module.parameters(), *self._buffers]
        self._send(tensors, root)
        # Ranks have drawn different numbers of times.
        states = collectives.gather_objects(default_generator.get_state(), self._ranks)
        default_generator.set_state(states[self._ranks.index(root)])
        self._reducer.instead = None

    # Communication: the same calls in the same order on ranks with a batch and without one.

    def _last_of(self, asks: bool) -> int:
        """The highest of the ranks that ask to be it."""
        flags = [0] * len(self._ranks)
        if asks:
            flags[self._ranks.index(world().rank or 0)] = 1
        found = sum_over(flags, self._ranks, self._device)
        return max(rank for rank, flag in zip(self._ranks, found, strict=True) if flag)

    @no_grad
    def _share_buffers(self, own: bool) -> None:
        """Give all ranks the buffers of one that has a batch."""
        if self._buffers and self._shares:
            self._send(self._buffers, self._last_of(own))

    @no_grad
    def _send(self, tensors: Sequence[Tensor], root: int) -> None:
        mine = world().rank == root
        for x in tensors:
            part = x.shards[0]
            value = collectives.broadcast(
                part if mine else None, part.shape, part.dtype, part.device, root, self._ranks
            )
            if not mine:
                x.copy_(from_shards((value,), x.meta))

    @no_grad
    def _sum_gradients(self, own: bool) -> None:
        """Sum gradients over the ranks; a parameter that none has read keeps None."""
        params = [param for bucket in self._reducer.buckets for param in bucket]
        there = [own and param.grad is not None for param in params]
        found = sum_over([int(each) for each in there], self._ranks, self._device)
        read = [param for param, count in zip(params, found, strict=True) if count]
        for group in [each for bucket in self._cut(read) for each in by_dtype(bucket)]:
            flat = torch.cat([self._addend(param, own).reshape(-1) for param in group])
            flat = collectives.all_reduce(flat, self._ranks, "sum", inplace=True)
            parts = flat.split([param.numel() for param in group])
            for param, part in zip(group, parts, strict=True):
                if own:
                    grad = from_shards((part.view(param.shape),), param.meta)
                    grad.shared = True  # a view of the buffer
                    param.grad = grad

    def _cut(self, params: Sequence[Tensor]) -> list[list[Tensor]]:
        """The parameters in the reducer's buckets."""
        wanted = {id(param) for param in params}
        cut = [[p for p in bucket if id(p) in wanted] for bucket in self._reducer.buckets]
        return [bucket for bucket in cut if bucket]

    def _addend(self, param: Tensor, own: bool) -> torch.Tensor:
        """This rank's addend of a gradient, zeros without one."""
        if not own or param.grad is None:
            return torch.zeros_like(param.shards[0])
        assert param.placement is not None
        sbp = (partial_sum,) * param.placement.ndim
        return box(param.grad, param.grad.meta.like(nd_sbp=sbp)).shards[0]


class OwnSteps(JoinedSteps):
    """Steps in which ranks may use different parameters of a module, each with a batch.

    Buffers are those of the first rank after every step, and random numbers go on at one place.
    """

    what = "find_unused_parameters"

    def __init__(self, module: Module, reducer: GradientReducer) -> None:
        super().__init__(module, reducer, True)

    def forward(self, inputs: Any, kwargs: dict[str, Any], going: int | None, syncs: bool) -> Any:
        seed, first = default_generator.get_state()
        try:
            result = super().forward(inputs, kwargs, going, syncs)
        finally:
            drawn = default_generator.get_state()[1] - first
            default_generator.set_state((seed, first + _DRAWS * max(1, -(-drawn // _DRAWS))))
        if syncs:
            self._send(self._buffers, self._ranks[0])
        return result

    def _announce(self, syncs: bool) -> None:
        """All ranks have a batch."""
