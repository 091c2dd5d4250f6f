"""DistributedDataParallel: a module of which every rank works on its part of the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ...distributed.topology import get_world_size
from ...distributed.world import world
from ...engine import interpreter
from ...engine.convert import to_local
from ...engine.local_shards import joined_by_members
from ...engine.placement import Placement
from ...engine.tensor import Tensor
from ...errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from ...graph.pytree import tree_map
from ..functional_call import functional_call
from ..module import Module
from .grad_bucket import Hook
from .gradient_reducer import GradientReducer
from .join import Join, Joinable, JoinHook
from .joined_steps import JoinedSteps, OwnSteps
from .local_batch import LocalBatch


class DistributedDataParallel(Module, Joinable):
    """`module` with parameters that all ranks have, and a batch that is split over the ranks.

    Parameters and buffers become global, in place: broadcast, with the values of the first rank.
    What is global already stays as it is. A local input is read as this rank's part of the batch
    along `dim`. Every call checks that the parts fit together, each of one size or the first ones
    one larger; with `static_graph` the first call does, and later ones trust that all ranks have
    parts of one shape. The results are then local too, and the gradients are means over the ranks,
    as in torch, if each rank's loss is a mean over its part. Global inputs are taken as they are:
    then the results are global, and the gradients those of one process with the whole batch. Batch
    norms see the whole batch in both cases, as torch's SyncBatchNorm does.

    In evaluation without gradients a call with local inputs is this rank's alone, as in torch: it
    communicates with no other, and may be made by one rank only. Only calls of this object take
    local inputs: for another use of `module`, load its `state_dict()` into one that is not wrapped.

    Gradients are summed in buckets of `bucket_cap_mb` MiB (25) while backward runs.
    `process_group` or `device_mesh` says over which ranks, by default all. With a group or a mesh
    only its ranks make and call the module, as in torch; with a placement all ranks do. Parameters
    without a gradient are no problem if they are the same ones on all ranks. With
    `find_unused_parameters` ranks may use different ones: each computes with its local inputs by
    itself, as in torch, so that its losses and the statistics of batch norms are those of its own
    part, of any size, and gradients are summed at the end of backward. Buffers are one value for
    all ranks, so that `broadcast_buffers`, `gradient_as_bucket_view` and other arguments about
    these have no effect. Raises OnefoldRuntimeError if no parameter requires a gradient, and
    OnefoldValueError for arguments that are not supported. Li et al., "PyTorch Distributed" (2020).

    >>> import onefold as flow
    >>> p = flow.placement("cpu", [0, 1])
    >>> model = flow.nn.parallel.DistributedDataParallel(flow.nn.Linear(4, 2), process_group=p)
    >>> model(flow.ones(8, 4, placement=p, sbp=flow.sbp.split(0))).sum().backward()
    >>> model.module.weight.grad.sbp
    (onefold.sbp.broadcast,)
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[int | torch.device] | None = None,
        output_device: int | torch.device | None = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: object = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: object = None,
        param_to_hook_all_reduce: object = None,
        mixed_precision: object = None,
        device_mesh: object = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: list[int] | None = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(module, Module):
            raise OnefoldTypeError(
                "DistributedDataParallel: module must be an onefold Module, but got "
                f"{type(module).__module__}.{type(module).__name__}"
            )
        params = [p for p in module.parameters() if p.requires_grad]
        if not params:
            raise OnefoldRuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameters "
                "that require a gradient."
            )
        if device_ids is not None and len(device_ids) > 1:
            raise OnefoldValueError(
                "device_ids can only be None or contain a single element, but got "
                f"{list(device_ids)}: a process has one device"
            )
        _check_unsupported(
            delay_all_reduce_named_params=delay_all_reduce_named_params,
            param_to_hook_all_reduce=param_to_hook_all_reduce,
            mixed_precision=mixed_precision,
            bucket_cap_mb_list=bucket_cap_mb_list,
        )
        given = device_mesh if process_group is None else process_group
        placement = _placement(params[0], process_group, device_mesh)
        # As in torch, ranks outside of a group know nothing of the module.
        alone = not (given is None or isinstance(given, Placement))
        cap = 25.0 if bucket_cap_mb is None else bucket_cap_mb
        if cap <= 0:
            raise OnefoldValueError(f"bucket_cap_mb must be above 0, but is {bucket_cap_mb}")
        self.dim = dim
        self.broadcast_buffers = broadcast_buffers is None or broadcast_buffers
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = static_graph
        self.bucket_bytes_cap = int(cap * 1024 * 1024)
        self.placement = placement
        self._batch = LocalBatch(placement, dim=dim, members_alone=alone)
        self.require_backward_grad_sync = True
        self._checked = False
        self._own: OwnSteps | None = None
        if any(t.is_local for t in [*module.parameters(), *module.buffers()]):
            with joined_by_members(alone):
                module.to_global(placement, lambda name, tensor: None)
        self.module = module
        self._reducer = GradientReducer(self, params, self.bucket_bytes_cap)

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_reducer", "_joined", "_join_config")
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy sums gradients of its own parameters; as in torch, it has no hook."""
        super().__setstate__(state)
        params = [p for p in self.module.parameters() if p.requires_grad]
        self._reducer = GradientReducer(self, params, self.bucket_bytes_cap)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if not (self.module.training or interpreter.is_grad_enabled()):
            held = self._held_for((inputs, kwargs))
            if held is not None:
                return functional_call(self.module, held, inputs, kwargs)
        if self._join_config.enable:
            going = Join.notify_join_context(self)
            _check_local((inputs, kwargs))
            return self._joined.forward(inputs, kwargs, going, self.require_backward_grad_sync)
        if self.find_unused_parameters and world().launched and _all_local((inputs, kwargs)):
            if self._own is None:
                self._own = OwnSteps(self.module, self._reducer)
            return self._own.forward(inputs, kwargs, None, self.require_backward_grad_sync)
        self._reducer.instead, self._reducer.enabled = None, self.require_backward_grad_sync
        check = not (self._checked and self.static_graph)
        (inputs, kwargs), local = self._batch.joined((inputs, kwargs), check)
        self._checked = self._checked or local
        result = self.module(*inputs, **kwargs)
        return self._batch.own_parts(result) if local else result

    def _held_for(self, given: Any) -> dict[str, Tensor] | None:
        """Local parameters and buffers for local inputs; None where they are not whole here."""
        if not _all_local(given):
            return None
        own = [*self.module.named_parameters(), *self.module.named_buffers()]
        if not all(x.shards and all(sbp.is_broadcast for sbp in x.sbp) for _, x in own):
            return None
        return {name: to_local(x) for name, x in own}

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """In the block, gradients are not summed over ranks: the next backward outside does it."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """A block in which ranks may have different numbers of batches; see `Join`."""
        options = {"divide_by_initial_world_size": divide_by_initial_world_size}
        return Join([self], enable, throw_on_early_termination, **options)

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What Join asks for: the steps of this module in a Join."""
        by_all = kwargs.get("divide_by_initial_world_size", True)
        self._joined = JoinedSteps(self.module, self._reducer, by_all)
        return self._joined

    @property
    def join_device(self) -> torch.device:
        """The device of this process's parameters."""
        rank = world().rank
        return self.placement.device(self.placement.flat_ranks[0] if rank is None else rank)

    @property
    def join_process_group(self) -> Placement:
        """The placement of the batch."""
        return self.placement

    def register_comm_hook(self, state: Any, hook: Hook) -> None:
        """Let `hook(state, bucket)` combine gradients over the ranks, bucket by bucket.

        The bucket is a GradBucket; the hook returns a future of the mean of its buffer over the
        ranks, or another tensor of that size. `flow.distributed.algorithms.ddp_comm_hooks` has
        hooks that send half precision. Parameters that are split are summed without it, and so are
        those of a graph. Raises OnefoldTypeError for what is no function, OnefoldRuntimeError for
        a second hook.

        >>> import onefold as flow
        >>> from onefold.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
        >>> p = flow.placement("cpu", [0, 1])
        >>> model = DistributedDataParallel(flow.nn.Linear(4, 2), process_group=p)
        >>> model.register_comm_hook(None, allreduce_hook)
        """
        if not callable(hook):
            raise OnefoldTypeError(
                f"Communication hook must be callable as hook(state, bucket), but got {hook!r}"
            )
        if self._reducer.hook is not None:
            raise OnefoldRuntimeError(
                "register_comm_hook can only be called once: write one hook that does both"
            )
        self._reducer.hook = (state, hook)


def _all_local(given: Any) -> bool:
    """Whether there are tensors in a pytree, and all of them are local."""
    tensors: list[Tensor] = []

    def read(x: Tensor) -> Tensor:
        tensors.append(x)
        return x

    tree_map(given, read)
    return bool(tensors) and all(x.is_local for x in tensors)


def _check_local(given: Any) -> None:
    def check(x: Tensor) -> Tensor:
        if x.is_global:
            raise OnefoldRuntimeError(
                "DistributedDataParallel: in a Join each rank has local inputs of its own, but one "
                "of these is global; all ranks have as many global batches, so leave Join out"
            )
        return x

    tree_map(given, check)


def _placement(param: Tensor, process_group: object, device_mesh: object) -> Placement:
    """Over which ranks the batch is split."""
    if process_group is not None and device_mesh is not None:
        raise OnefoldRuntimeError(
            "Cannot specify both process_group and device_mesh arguments: either is the placement"
        )
    given = _given_placement(param, device_mesh if process_group is None else process_group)
    if param.is_global:
        if given is not None and given is not param.placement:
            raise OnefoldValueError(
                f"DistributedDataParallel: the module is on {param.placement}, but the batch "
                f"would be on {given}; move the module with to_global, or leave the argument out"
            )
        return param.placement
    if given is not None:
        return given
    return Placement(param.device.type, list(range(get_world_size())))


def _given_placement(param: Tensor, given: Any) -> Placement | None:
    """A placement, or that of a process group or of a mesh, which stand above this package."""
    if given is None:
        return None
    if isinstance(given, Placement):
        return given
    group = given.get_group() if hasattr(given, "get_group") else given
    if not isinstance(getattr(group, "ranks", None), tuple):
        raise OnefoldTypeError(
            "DistributedDataParallel: process_group must be None, for all ranks, a group of "
            "flow.distributed.new_group, or an onefold.placement such as "
            f'flow.placement("cpu", ranks=[0, 1]), but got {given!r}'
        )
    return Placement(param.device.type, list(group.ranks))


def _check_unsupported(**given: object) -> None:
    found = [name for name, value in given.items() if value is not None]
    if found:
        raise OnefoldValueError(
            f"DistributedDataParallel: {', '.join(found)} cannot be set here. Use one "
            "bucket_cap_mb, module.bfloat16() for another precision, and "
            "tensor.register_post_accumulate_grad_hook for hooks of parameters."
        )
