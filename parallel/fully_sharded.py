"""fully_shard (torch.distributed.fsdp): parameters in shards, and each rank's part of the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from math import prod
from typing import Any, NoReturn, TypeVar, cast

import torch

from ..distributed.topology import get_world_size
from ..distributed.world import world
from ..engine.grad_attributes import HookHandle
from ..engine.local_shards import joined_by_members
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError
from ..graph.pytree import tree_map
from ..graph.zero import split_layout
from ..nn.gathered_parameters import on_own_tensors
from ..nn.module import Module
from ..nn.parallel.local_batch import LocalBatch
from ..nn.parameter import Parameter
from ..nn.parameter_readers import add_gathers
from .device_mesh import DeviceMesh, init_device_mesh
from .mesh_tensors import Shard
from .own_views import lift_styled, own_views

__all__ = [
    "CPUOffloadPolicy",
    "FSDPModule",
    "MixedPrecisionPolicy",
    "OffloadPolicy",
    "UnshardHandle",
    "fully_shard",
    "register_fsdp_forward_method",
]

M = TypeVar("M", bound=Module | Sequence[Module])

# As `Module.shard_`: a parameter of which a shard would have fewer elements stays whole.
SHARD_MIN_SIZE = 1024

_inside: ContextVar[bool] = ContextVar("inside_fully_sharded", default=False)
_parts: ContextVar[bool] = ContextVar("parts_of_a_batch", default=False)  # the outermost call's


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes in which a module computes, and in which its gradients are summed.

    Parameters are gathered in `param_dtype`. Their gradients are summed over ranks in
    `reduce_dtype`, by default `param_dtype`. Inputs are cast to `param_dtype` if
    `cast_forward_inputs` is true, results to `output_dtype`.
    """

    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None
    output_dtype: torch.dtype | None = None
    cast_forward_inputs: bool = True


FULL_PRECISION = MixedPrecisionPolicy()


@dataclass
class OffloadPolicy:
    """Parameters stay on the device on which they are used."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Parameters on the host, which is not supported: `fully_shard` raises OnefoldValueError."""

    pin_memory: bool = True


class UnshardHandle:
    """What `unshard(async_op=True)` gives: nothing is left to wait for."""

    def wait(self) -> None:
        """Return at once."""


class _Calls:
    """How the calls of a module are made: with a local batch, and in which dtypes."""

    def __init__(
        self,
        batch: LocalBatch,
        policy: MixedPrecisionPolicy,
        is_tensor_parallel: bool,
        names: Sequence[str],
        ranks: int,
    ) -> None:
        self.batch = batch
        self.policy = policy
        self.is_tensor_parallel = is_tensor_parallel
        self.names = names  # of the parameters that are none of an inner module's
        self.ranks = ranks  # with batches of their own
        self.had_parts = False  # in the last call
        self.hooks: list[HookHandle] = []

    def divide_gradients(self, module: Module, factor: float) -> None:
        """Let gradients of local batches be sums over the ranks, divided by `factor`."""
        for hook in self.hooks:
            hook.remove()
        scale = self.ranks / factor

        def scaled(gradient: Tensor) -> Tensor:
            return gradient * scale if self.had_parts else gradient

        params = [module.get_parameter(name) for name in self.names]
        self.hooks = [p.register_hook(scaled) for p in params if p.requires_grad and scale != 1]

    def on_own_tensors(self, given: Any) -> bool:
        """Whether a call computes on this rank's tensors, and those of its group.

        As in torch, the code of a tensor-parallel module may count on the sizes of its own parts.
        """
        if not self.is_tensor_parallel or not world().launched:
            return False
        found = False

        def look(x: Tensor) -> Tensor:
            nonlocal found
            found = found or x.is_local
            return x

        tree_map(given, look)
        return found

    def run(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The results of a method: local if an argument is, and the call is not inside another."""
        given, policy = (args, kwargs), self.policy
        outer = _inside.get()
        own = not outer and self.on_own_tensors(given)
        given, local = (given, False) if outer or own else self.batch.joined(given)
        if policy.cast_forward_inputs and policy.param_dtype is not None:
            given = _cast(given, policy.param_dtype)
        parts = _parts.set(_parts.get() if outer else own or local)
        self.had_parts = _parts.get()
        token = _inside.set(True)
        before = on_own_tensors.set(own or on_own_tensors.get())
        try:
            result = function(*given[0], **given[1])
        finally:
            on_own_tensors.reset(before)
            _inside.reset(token)
            _parts.reset(parts)
        if policy.output_dtype is not None:
            result = _cast(result, policy.output_dtype)
        return self.batch.own_parts(result) if local else result


def _cast(tree: Any, dtype: torch.dtype) -> Any:
    return tree_map(tree, lambda x: x.to(dtype) if x.dtype.is_floating_point else x)


class FSDPModule(Module):
    """A module whose parameters `fully_shard` stores in shards; every such module is one.

    Parameters are gathered by the call that reads them, and reduced to shards in backward, so the
    methods that say when torch does so have no effect.
    """

    _fsdp_calls: _Calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._fsdp_calls.run(super().__call__, args, kwargs)

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """No effect: a call gathers what it reads."""
        return UnshardHandle() if async_op else None

    def reshard(self) -> None:
        """No effect: nothing is gathered between calls."""

    def set_requires_gradient_sync(
        self, requires_gradient_sync: bool, *, recurse: bool = True
    ) -> None:
        """No effect: gradients are summed when they are made, with the same result."""

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """No effect: gradients are summed when they are made, with the same result."""

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """No effect."""

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether backward gathers parameters again, or the tape keeps them."""
        for module in self.modules() if recurse else (self,):
            gathers = [
                g._replace(reshard_after_forward=reshard_after_forward)
                for g in module._weight_gathers
            ]
            module.__dict__["_weight_gathers"] = tuple(gathers)

    def set_reshard_after_backward(
        self, reshard_after_backward: bool, *, recurse: bool = True
    ) -> None:
        """No effect: nothing is gathered after backward."""

    def set_modules_to_forward_prefetch(self, modules: Iterable[Module]) -> None:
        """No effect."""

    def set_modules_to_backward_prefetch(self, modules: Iterable[Module]) -> None:
        """No effect."""

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """No effect: backward gathers what it reads."""

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Divide the sum over ranks of this module's gradients by `factor`, not by their number.

        It counts for local batches; gradients of global ones are those of one process. Parameters
        of modules inside that are sharded themselves have their own factor.
        """
        self._fsdp_calls.divide_gradients(self, factor)

    def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
        """No effect: gradients are summed, and scaled by themselves."""

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def __deepcopy__(self, memo: dict[int, object]) -> NoReturn:
        raise OnefoldTypeError(
            "FSDP does not support deepcopy. Copy the module before fully_shard, or load its "
            "state_dict() into another one"
        )


_classes: dict[type[Module], type[Module]] = {}


def _sharded_class(cls: type[Module]) -> type[Module]:
    """The class of modules of a class that are sharded; its name begins with FSDP, as in torch."""
    if cls not in _classes:
        _classes[cls] = type(f"FSDP{cls.__name__}", (FSDPModule, cls), {})
    return _classes[cls]


def fully_shard(
    module: M,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[Parameter], Shard | None] | None = None,
    mp_policy: MixedPrecisionPolicy = FULL_PRECISION,
    offload_policy: OffloadPolicy | None = None,
    ignored_params: set[Parameter] | None = None,
) -> M:
    """Store a module's parameters in shards, in place, and let its calls take local batches.

    Parameters become global over `mesh`, by default all ranks, from the values of its first one.
    Each is split along dim 0, or that of `shard_placement_fn`, unless its shards would have fewer
    than 1024 elements; those of `ignored_params` and of modules that were sharded before stay as
    they are. With a mesh of two axes they are split over the last and replicated along the first.
    Calls gather parameters as `Module.shard_` says; `reshard_after_forward=False` keeps them for
    backward.

    Local inputs are this rank's part of the batch, and results are local then; gradients are means
    over the ranks, as in torch, if each rank's loss is a mean over its part. Global inputs are
    taken as they are: then results are global, and gradients those of one process with all of the
    batch.
    Every rank of the mesh takes part in every call. Raises OnefoldTypeError for what is no module,
    OnefoldValueError for a mesh of more axes and for parameters on the host. Zhao et al., "PyTorch
    FSDP" (2023).

    >>> import onefold as flow
    >>> mesh = init_device_mesh("cpu", (2,))
    >>> model = flow.nn.Sequential(flow.nn.Linear(64, 64), flow.nn.ReLU())
    >>> type(fully_shard(model, mesh=mesh)).__name__, model[0].weight.placements
    ('FSDPSequential', (Shard(dim=0),))
    """
    again = reshard_after_forward is not False
    for each in modules_of("fully_shard", module, offload_policy):
        shard_module(each, mesh, again, shard_placement_fn, mp_policy, ignored_params)
    return module


def modules_of(
    function: str, module: Module | Sequence[Module], offload_policy: OffloadPolicy | None
) -> Sequence[Module]:
    """The modules that a function of torch's name got; see `fully_shard` for the errors."""
    modules: Sequence[Any] = module if isinstance(module, (list, tuple)) else [module]
    for each in modules:
        if not isinstance(each, Module):
            raise OnefoldTypeError(
                f"{function} needs an onefold Module, but got {type(each).__name__}"
            )
    if isinstance(offload_policy, CPUOffloadPolicy):
        raise OnefoldValueError(
            f"{function}: CPUOffloadPolicy is not supported; parameters stay on their device. To "
            "keep activations on the host, use flow.autograd.graph.save_on_cpu()"
        )
    return modules


def shard_module(
    module: Module,
    mesh: DeviceMesh | None,
    reshard_after_forward: bool,
    dim_of: Callable[[Parameter], Shard | None] | None,
    policy: MixedPrecisionPolicy,
    ignored: set[Any] | None,
    split: bool = True,
) -> None:
    """`fully_shard` of one module, or `replicate` if not `split`; see there for the arguments."""
    module = cast("Module", getattr(module, "_orig_mod", module))  # of flow.compile
    mesh = _mesh_for(module, mesh)
    inner = [m for m in module.modules() if isinstance(m, FSDPModule) and m is not module]
    done = {id(p) for m in inner for p in m.parameters()}
    done |= {id(p) for p in ignored or ()}
    dims: dict[str, int] = {}
    for name, param in module.named_parameters():
        if id(param) not in done:
            chosen = None if dim_of is None else dim_of(param)
            dims[name] = 0 if chosen is None else chosen.dim
    alone = len(mesh.placement.flat_ranks) < get_world_size()
    with joined_by_members(alone):
        styled = lift_styled(module, mesh)
        module.to_global(mesh.placement, lambda name, tensor: None)
    params = dict(module.named_parameters())
    used = {name: params[name].sbp for name in dims}
    axes = mesh.axes[-1:] if split else ()
    stored = {
        name: split_layout(params[name].meta, SHARD_MIN_SIZE, dim=dim, only_axes=axes)
        for name, dim in dims.items()
    }
    module.to_global(sbp=lambda name, tensor: stored.get(name))
    own = own_views(module, mesh)
    low = {name for name in dims if policy.param_dtype and params[name].is_floating_point()}
    cast_too = {name: used[name] for name in low}
    kept = used.items() if own is not None else ()
    moved = {name: sbp for name, sbp in used.items() if name not in low and sbp != stored[name]}
    moved |= {name: sbp for name, sbp in kept if name not in low}
    again, dtypes = reshard_after_forward, (policy.param_dtype, policy.reduce_dtype)
    add_gathers(module, moved, again, own=own)
    add_gathers(module, cast_too, again, *dtypes, own=own)
    batch = LocalBatch(mesh.placement, mesh.axes, members_alone=alone)
    ranks = prod(mesh.placement.shape[axis] for axis in mesh.axes)
    module.__dict__["_fsdp_calls"] = _Calls(batch, policy, styled, list(dims), ranks)
    if not isinstance(module, FSDPModule):
        module.__class__ = _sharded_class(type(module))


# In torch the function is in a module of its name, and both have one path.
vars(fully_shard)["fully_shard"] = fully_shard
vars(fully_shard)["FSDPModule"] = FSDPModule


def device_of(module: Module) -> str:
    """The kind of device on which a module computes: of one that has no data yet, a GPU if any."""
    found = next((p.device.type for p in module.parameters()), "cpu")
    if found != "meta":
        return found
    return "cuda" if torch.cuda.is_available() else "cpu"


def _mesh_for(module: Module, mesh: DeviceMesh | None) -> DeviceMesh:
    if mesh is None:
        return init_device_mesh(device_of(module), (get_world_size(),))
    if not isinstance(mesh, DeviceMesh):
        raise OnefoldTypeError(
            "fully_shard: mesh must be a DeviceMesh, such as init_device_mesh('cpu', (2,)), but "
            f"got {mesh!r}"
        )
    if mesh.ndim > 2:
        raise OnefoldValueError(
            f"fully_shard expects a 1D or 2D DeviceMesh, but got {mesh}; name its axes, as in "
            "mesh['replicate', 'shard']"
        )
    return mesh


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Let calls of another method of a sharded module take local batches, as those of forward do.

    No effect for a module that `fully_shard` did not change.
    """
    if isinstance(module, FSDPModule):
        method = getattr(module, method_name)

        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            return module._fsdp_calls.run(method, args, kwargs)

        module.__dict__[method_name] = call
