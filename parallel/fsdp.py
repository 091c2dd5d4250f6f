"""torch.distributed.fsdp: `fully_shard`, and the older FullyShardedDataParallel around a module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, NamedTuple, cast

import torch
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    OptimStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictType,
)

from ..checkpoint.model_states import (
    StateDictOptions,
    from_rank_0,
    get_optimizer_state_dict,
    names_of,
    numbered,
)
from ..comm.process_groups import ProcessGroup
from ..distributed.world import world
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldTypeError, OnefoldValueError
from ..graph.pytree import tree_map
from ..nn.module import Module
from ..nn.utils.clip_grad import clip_grad_norm_
from ..optim.grad_scaler import GradScaler
from ..optim.optimizer import Optimizer
from .composable_replicate import replicate
from .device_mesh import DeviceMesh
from .fully_sharded import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    UnshardHandle,
    device_of,
    fully_shard,
    register_fsdp_forward_method,
    shard_module,
)
from .mesh_tensors import DTensor

__all__ = [
    "BackwardPrefetch",
    "CPUOffload",
    "CPUOffloadPolicy",
    "FSDPModule",
    "FullOptimStateDictConfig",
    "FullStateDictConfig",
    "FullyShardedDataParallel",
    "LocalOptimStateDictConfig",
    "LocalStateDictConfig",
    "MixedPrecision",
    "MixedPrecisionPolicy",
    "OffloadPolicy",
    "OptimStateDictConfig",
    "OptimStateKeyType",
    "ShardedGradScaler",
    "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig",
    "ShardingStrategy",
    "StateDictConfig",
    "StateDictSettings",
    "StateDictType",
    "UnshardHandle",
    "fully_shard",
    "register_fsdp_forward_method",
    "replicate",
]

__path__: list[str] = []  # compat/import_paths.py leads to what is below it

_WRAPPED = "_fsdp_wrapped_module"
_KEPT = (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy._HYBRID_SHARD_ZERO2)


class StateDictSettings(NamedTuple):
    """Which states FullyShardedDataParallel gives, and how."""

    state_dict_type: StateDictType = StateDictType.FULL_STATE_DICT
    state_dict_config: Any = FullStateDictConfig()
    optim_state_dict_config: Any = FullOptimStateDictConfig()


class ShardedGradScaler(GradScaler):
    """`flow.amp.GradScaler` by its name for parameters in shards; see there.

    `process_group` has no effect: ranks that hold a gradient skip a step together.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        backoff_factor: float = 0.5,
        growth_factor: float = 2.0,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: object = None,
    ) -> None:
        super().__init__(
            device, init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )


_DEFAULTS = StateDictSettings()
_settings: ContextVar[StateDictSettings] = ContextVar("state_dict_type", default=_DEFAULTS)


class FullyShardedDataParallel(FSDPModule):
    """`module` with parameters in shards, as `fully_shard` stores them; calls take local batches.

    FULL_SHARD gathers parameters once more in backward, SHARD_GRAD_OP keeps them, NO_SHARD splits
    none, and a HYBRID strategy splits over the last axis of a `device_mesh` of two. Which layers
    `auto_wrap_policy` wraps, when parameters are prefetched and other arguments about time have no
    effect: each layer gathers what it reads. `state_dict()` has whole tensors, unless
    `state_dict_type` says otherwise, under the names of `module`. Raises OnefoldTypeError for what
    is no module or mesh, OnefoldValueError for parameters on the host and `param_init_fn`.

    >>> import onefold as flow
    >>> mesh = flow.distributed.init_device_mesh("cpu", (2,))
    >>> model = FullyShardedDataParallel(flow.nn.Linear(64, 64), device_mesh=mesh)
    >>> model.module.weight.placements, list(model.state_dict())
    ((Shard(dim=0),), ['weight', 'bias'])
    """

    def __init__(
        self,
        module: Module,
        process_group: ProcessGroup | None = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None,
        auto_wrap_policy: object = None,
        backward_prefetch: object = None,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        param_init_fn: object = None,
        device_id: int | torch.device | None = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        ignored_states: Iterable[Any] | None = None,
        device_mesh: DeviceMesh | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(module, Module):
            raise OnefoldTypeError(
                f"FullyShardedDataParallel needs an onefold Module, but got {type(module).__name__}"
            )
        if cpu_offload is not None and cpu_offload.offload_params:
            raise OnefoldValueError(
                "FullyShardedDataParallel: parameters stay on their device, so cpu_offload cannot "
                "be set"
            )
        if param_init_fn is not None:
            raise OnefoldValueError(
                "FullyShardedDataParallel: param_init_fn cannot be set; make the module with its "
                "values, or inside flow.device('meta') followed by to_empty()"
            )
        if device_id is not None:
            module.to(torch.device("cuda", device_id) if isinstance(device_id, int) else device_id)
        self._fsdp_wrapped_module = module
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        low = mixed_precision or MixedPrecision()
        ignored = [*(p for m in ignored_modules or () for p in m.parameters())]
        for each in ignored_states or ():
            ignored += each.parameters() if isinstance(each, Module) else [each]
        shard_module(
            self,
            _mesh_of(process_group, device_mesh, module),
            strategy not in _KEPT,
            None,
            MixedPrecisionPolicy(low.param_dtype, low.reduce_dtype),
            set(ignored) if strategy is not ShardingStrategy.NO_SHARD else set(module.parameters()),
        )

    @property
    def module(self) -> Module:
        """The module that is wrapped."""
        return cast("Module", self._modules[_WRAPPED])

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == _WRAPPED or _WRAPPED not in self.__dict__.get("_modules", ()):
                raise
            return getattr(self.module, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def no_sync(self) -> AbstractContextManager[None]:
        """No effect: gradients are summed when they are made, with the same result."""
        return nullcontext()

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """`flow.nn.utils.clip_grad_norm_` of all parameters; the norm is local."""
        norm = clip_grad_norm_(self.parameters(), max_norm, norm_type)
        return norm if norm.is_local else tensor_ops.full_tensor(norm)

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """The modules inside `module` that are wrapped, itself included."""
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        return found[:1] if root_only else found

    @staticmethod
    @contextmanager
    def state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: Any = None,
        optim_state_dict_config: Any = None,
    ) -> Iterator[None]:
        """A block in which `state_dict()` has whole tensors, or global ones (SHARDED_STATE_DICT).

        Of a FullStateDictConfig, and one of optimizers, `offload_to_cpu` and `rank0_only` count.
        Raises OnefoldValueError for LOCAL_STATE_DICT.
        """
        found = _read_settings(state_dict_type, state_dict_config, optim_state_dict_config)
        token = _settings.set(found)
        try:
            yield
        finally:
            _settings.reset(token)

    @staticmethod
    def set_state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: Any = None,
        optim_state_dict_config: Any = None,
    ) -> StateDictSettings:
        """As `state_dict_type`, from now on; returns the settings before."""
        before = _settings.get()
        _settings.set(_read_settings(state_dict_type, state_dict_config, optim_state_dict_config))
        return before

    @staticmethod
    def get_state_dict_type(module: Module) -> StateDictSettings:
        """The settings that count now."""
        return _settings.get()

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The parameters and buffers under the names that they have without a wrapper."""
        found = super().state_dict(*args, **kwargs)
        kind, config, _ = _settings.get()
        full = kind is StateDictType.FULL_STATE_DICT
        made = {_clean(k): _whole(v, config) if full else v for k, v in found.items()}
        return {} if full and config.rank0_only and world().rank not in (None, 0) else made

    @staticmethod
    def optim_state_dict(
        model: Module, optim: Optimizer, optim_state_dict: object = None, group: object = None
    ) -> dict[str, Any]:
        """The state of an optimizer by the names of parameters, as `state_dict_type` says."""
        kind, _, config = _settings.get()
        full = kind is StateDictType.FULL_STATE_DICT
        found = get_optimizer_state_dict(
            model,
            optim,
            options=StateDictOptions(full, config.offload_to_cpu and not full),
        )
        if not full:
            return found
        if config.rank0_only and world().rank not in (None, 0):
            return {}
        return cast("dict[str, Any]", _on_cpu(found) if config.offload_to_cpu else found)

    @staticmethod
    def full_optim_state_dict(
        model: Module,
        optim: Optimizer,
        optim_input: object = None,
        rank0_only: bool = True,
        group: object = None,
    ) -> dict[str, Any]:
        """The state with whole tensors on the cpu, on rank 0 alone unless told otherwise."""
        config = FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=rank0_only)
        kind = StateDictType.FULL_STATE_DICT
        with FullyShardedDataParallel.state_dict_type(model, kind, None, config):
            return FullyShardedDataParallel.optim_state_dict(model, optim)

    @staticmethod
    def sharded_optim_state_dict(
        model: Module, optim: Optimizer, group: object = None
    ) -> dict[str, Any]:
        """The state with global tensors, in the layout of the parameters."""
        return get_optimizer_state_dict(model, optim)

    @staticmethod
    def optim_state_dict_to_load(
        model: Module,
        optim: Optimizer,
        optim_state_dict: Mapping[str, Any],
        is_named_optimizer: bool = False,
        load_directly: bool = False,
        group: object = None,
    ) -> dict[str, Any]:
        """A state by names as one by numbers, for `optim.load_state_dict`, which lays it out."""
        full, _, config = _settings.get()
        given = dict(optim_state_dict)
        if full is StateDictType.FULL_STATE_DICT and config.rank0_only:
            given = from_rank_0(given)
        found = numbered(optim, names_of(model), given)
        if load_directly:
            optim.load_state_dict(found)
        return found

    @staticmethod
    def shard_full_optim_state_dict(
        full_optim_state_dict: Mapping[str, Any],
        model: Module,
        optim_input: object = None,
        optim: Optimizer | None = None,
    ) -> dict[str, Any]:
        """A whole state by names, which every rank has, for `optim.load_state_dict`.

        Raises OnefoldTypeError without an optimizer.
        """
        return numbered(_needed(optim), names_of(model), dict(full_optim_state_dict))

    @staticmethod
    def scatter_full_optim_state_dict(
        full_optim_state_dict: Mapping[str, Any] | None,
        model: Module,
        optim_input: object = None,
        optim: Optimizer | None = None,
        group: object = None,
    ) -> dict[str, Any]:
        """A whole state by names that rank 0 has, for `optim.load_state_dict` on every rank.

        Raises OnefoldTypeError without an optimizer.
        """
        given = from_rank_0(dict(full_optim_state_dict or {}))
        return numbered(_needed(optim), names_of(model), given)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load what `state_dict` of a wrapped module, or of one that is not, gives."""
        own = {_clean(name): name for name in super().state_dict()}
        given = {own.get(name, name): value for name, value in state_dict.items()}
        return super().load_state_dict(given, strict, assign)


def _needed(optim: Optimizer | None) -> Optimizer:
    if optim is None:
        raise OnefoldTypeError("pass optim=, the optimizer that is to load the state")
    return optim


def _read_settings(kind: StateDictType, config: Any, of_optimizer: Any) -> StateDictSettings:
    if kind is StateDictType.LOCAL_STATE_DICT:
        raise OnefoldValueError("state_dict_type: LOCAL_STATE_DICT is not supported; use SHARDED")
    whole = isinstance(config, FullStateDictConfig)
    known = isinstance(of_optimizer, OptimStateDictConfig)
    return StateDictSettings(
        kind,
        config if whole else FullStateDictConfig(),
        of_optimizer if known else FullOptimStateDictConfig(),
    )


def _on_cpu(tree: Any) -> Any:
    return tree_map(tree, lambda x: x.cpu())


def _clean(name: str) -> str:
    return name.replace(f"{_WRAPPED}.", "")


def _whole(value: Any, config: FullStateDictConfig) -> Any:
    if isinstance(value, DTensor):
        value = tensor_ops.full_tensor(value)
    return value.cpu() if config.offload_to_cpu and isinstance(value, Tensor) else value


def _mesh_of(
    group: ProcessGroup | None, mesh: DeviceMesh | None, module: Module
) -> DeviceMesh | None:
    if mesh is not None or group is None:
        return mesh
    if not isinstance(group, ProcessGroup):
        raise OnefoldTypeError(
            "FullyShardedDataParallel: process_group must be one that dist.new_group() gives, but "
            f"got {group!r}"
        )
    return DeviceMesh(device_of(module), list(group.ranks))
