"""Import paths of torch that lead to other modules here, or to what a program can use instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pkgutil import resolve_name
from types import ModuleType

from ..distributed.torch_names import (
    MISSING as DISTRIBUTED,
    MISSING_OF_ALGORITHMS,
    MISSING_OF_HOOKS,
    MISSING_OF_TENSORS,
)
from ..errors import OnefoldRuntimeError
from ..nn.unsupported_names import ATTENTION, LAYERS
from .missing_names import CUDA, FX, JIT, NAMES, ONNX, UTILS

_PACKAGE = __name__.partition(".")[0]

_BACKENDS = "cpu cuda cudnn mkl mkldnn mps openmp opt_einsum".split()

# Each path, and the module to which it leads, or where the module is a name of another. What a
# path is below has `__path__`, which Python asks of a module that is to have others below it.
PATHS: Mapping[str, str] = {
    **{
        f"{_PACKAGE}.{path}": f"{_PACKAGE}.{module}"
        for path, module in {
            "_utils": "compat.dense_buffers",
            "amp.autocast_mode": "amp",
            "amp.grad_scaler": "amp",
            "autograd": "engine.autograd_api",
            "autograd.anomaly_mode": "engine.anomaly",
            "autograd.forward_ad": "engine.forward_ad",
            "autograd.function": "engine.autograd_function",
            "autograd.functional": "engine.functional_autograd",
            "autograd.grad_mode": "engine.grad_mode",
            "autograd.graph": "engine.saved_tensors",
            "autograd.profiler": "profiler.autograd_profiler",
            "autograd.variable": "engine.legacy_variable",
            "cuda.amp": "compat.cuda_amp",
            "cuda.amp.autocast_mode": "compat.cuda_amp",
            "cuda.amp.grad_scaler": "compat.cuda_amp",
            "distributed._composable": "parallel.fsdp",
            "distributed._composable.fsdp": "parallel.fsdp",
            "distributed._composable.fsdp.fully_shard": "parallel.fully_sharded:fully_shard",
            "distributed._composable.replicate": "parallel.composable_replicate:replicate",
            "distributed._functional_collectives": "parallel.functional_collectives",
            "distributed._tensor": "parallel.mesh_tensors",
            "distributed._tensor.api": "parallel.mesh_tensors",
            "distributed._tensor.placement_types": "parallel.mesh_tensors",
            "distributed.algorithms": "parallel.algorithms",
            "distributed.algorithms._checkpoint": "parallel.algorithms",
            "distributed.algorithms._checkpoint.checkpoint_wrapper": "parallel.checkpoint_wrapper",
            "distributed.algorithms.ddp_comm_hooks": "parallel.comm_hooks",
            "distributed.algorithms.ddp_comm_hooks.debugging_hooks": "parallel.comm_hooks",
            "distributed.algorithms.ddp_comm_hooks.default_hooks": "parallel.comm_hooks",
            "distributed.algorithms.join": "nn.parallel.join",
            "distributed.checkpoint": "checkpoint.torch_checkpoint",
            "distributed.checkpoint.api": "checkpoint.torch_checkpoint",
            "distributed.checkpoint.default_planner": "checkpoint.torch_checkpoint",
            "distributed.checkpoint.filesystem": "checkpoint.torch_checkpoint",
            "distributed.checkpoint.format_utils": "checkpoint.torch_checkpoint",
            "distributed.checkpoint.state_dict": "checkpoint.model_states",
            "distributed.checkpoint.state_dict_loader": "checkpoint.torch_checkpoint",
            "distributed.checkpoint.state_dict_saver": "checkpoint.torch_checkpoint",
            "distributed.checkpoint.stateful": "checkpoint.torch_checkpoint",
            "distributed.constants": "comm.process_groups",
            "distributed.device_mesh": "parallel.device_mesh",
            "distributed.distributed_c10d": "distributed",
            "distributed.fsdp": "parallel.fsdp",
            "distributed.fsdp.api": "parallel.fsdp",
            "distributed.fsdp.fully_sharded_data_parallel": "parallel.fsdp",
            "distributed.fsdp.sharded_grad_scaler": "parallel.fsdp",
            "distributed.nn": "comm.differentiable_collectives",
            "distributed.nn.functional": "comm.differentiable_collectives",
            "distributed.optim": "parallel.zero_optimizer",
            "distributed.optim.zero_redundancy_optimizer": "parallel.zero_optimizer",
            "distributed.pipelining": "parallel.pipelining",
            "distributed.pipelining.microbatch": "parallel.pipelining.chunk_specs",
            "distributed.pipelining.schedules": "parallel.pipelining.pipeline_schedules",
            "distributed.pipelining.stage": "parallel.pipelining.pipeline_stage",
            "distributed.tensor": "parallel.mesh_tensors",
            "distributed.tensor.device_mesh": "parallel.device_mesh",
            "distributed.tensor.parallel": "parallel.parallelize",
            "distributed.tensor.parallel.api": "parallel.parallelize",
            "distributed.tensor.parallel.loss": "parallel.parallelize",
            "distributed.tensor.parallel.style": "parallel.parallel_styles",
            "distributed.tensor.placement_types": "parallel.mesh_tensors",
            "nn.attention": "nn.attention_backends",
            "nn.attention.flex_attention": "nn.flex_attention",
            "nn.modules": "compat.layer_paths",
            **{
                f"nn.modules.{name}": f"compat.layer_paths:{name}"
                for name in """
                activation adaptive batchnorm channelshuffle container conv distance dropout
                flatten fold instancenorm lazy linear loss module normalization padding
                pixelshuffle pooling rnn sparse transformer upsampling utils
                """.split()
            },
            "nn.parallel.distributed": "nn.parallel",
            "nn.parallel.scatter_gather": "nn.parallel.device_parts",
            "ops": "compat.op_namespaces",
            "overrides": "compat.overrides",
            "random": "compat.random_state",
            "signal": "engine.ops.signal",
            "signal.windows": "engine.ops.signal_windows",
            "types": "compat.torch_types",
            "utils.data._utils": "utils.data",
            "utils.data._utils.collate": "utils.data.collate",
            "utils.data.dataloader": "utils.data",
            "utils.data.dataset": "utils.data",
            "utils.data.sampler": "utils.data",
            "utils.dlpack": "engine.values",
        }.items()
    },
    **{
        f"{_PACKAGE}.{path}": f"torch.{path}"
        for path in """
        __config__ _dynamo _inductor accelerator cuda.nvtx cuda.profiler distributed.elastic
        distributed.fsdp.wrap distributed.launcher futures mps utils._pytree utils.benchmark
        utils.hooks xpu
        """.split()
    },
    f"{_PACKAGE}.jit.annotations": "torch.jit.annotations",
    f"{_PACKAGE}.multiprocessing": "torch.multiprocessing",
    **{f"{_PACKAGE}.backends.{name}": f"torch.backends.{name}" for name in _BACKENDS},
}

# The names that a package lacks, with what to use in their place.
_MISSING: Mapping[str, Mapping[str, str]] = {
    _PACKAGE: NAMES,
    f"{_PACKAGE}.cuda": CUDA,
    f"{_PACKAGE}.distributed": DISTRIBUTED,
    f"{_PACKAGE}.distributed.algorithms": MISSING_OF_ALGORITHMS,
    f"{_PACKAGE}.distributed.algorithms.ddp_comm_hooks": MISSING_OF_HOOKS,
    f"{_PACKAGE}.distributed.tensor": MISSING_OF_TENSORS,
    f"{_PACKAGE}.fx": FX,
    f"{_PACKAGE}.jit": JIT,
    f"{_PACKAGE}.nn": LAYERS,
    f"{_PACKAGE}.nn.attention": ATTENTION,
    f"{_PACKAGE}.onnx": ONNX,
    f"{_PACKAGE}.utils": UTILS,
}
_OWNERS = {PATHS[path]: path for path in _MISSING if path in PATHS}


# Modules of other packages that stand here, and modules to import after one of another package.
_FOREIGN = {f"einops.layers.{_PACKAGE}": f"{_PACKAGE}.utils.einops_layers"}
_FOLLOWERS = {"einops._backends": f"{_PACKAGE}.utils.einops_backend"}


class MissingModule(OnefoldRuntimeError, ModuleNotFoundError):
    """A module of torch that is not here; the message says what to use instead."""


def _torchs(path: str) -> str | None:
    """The module of torch to which a path leads that is below one of torch's modules."""
    owner, _, name = path.rpartition(".")
    above = PATHS.get(owner) or (_torchs(owner) if owner else None)
    return f"{above}.{name}" if above is not None and above.startswith("torch.") else None


class _Finder(MetaPathFinder, Loader):
    """Is asked for the modules that are no files."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in PATHS or fullname in _FOREIGN or _torchs(fullname) is not None:
            return ModuleSpec(fullname, self)
        owner, _, name = fullname.rpartition(".")
        owner = _OWNERS.get(owner, owner)  # `from path import name` asks by the module's own name
        missing = _MISSING.get(owner, {})
        if name in missing:
            # Without `name=`, or `from onefold import name` would catch it and tell less.
            raise MissingModule(f"{owner}.{name} is not offered: {missing[name]}")
        return None

    def exec_module(self, module: ModuleType) -> None:
        # An import gives what stands here when this returns, not `module`.
        name = module.__name__
        # The colon says that all of the path is a module.
        path = PATHS.get(name) or _FOREIGN.get(name) or f"{_torchs(name)}:"
        sys.modules[name] = resolve_name(path)


class _FollowerFinder(MetaPathFinder):
    """Imports a follower after the module that it extends."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _FOLLOWERS:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        loader = None if spec is None else spec.loader
        if loader is not None:
            setattr(loader, "exec_module", partial(_load_both, loader.exec_module))  # noqa: B010
        return spec


def _load_both(load: Callable[[ModuleType], None], module: ModuleType) -> None:
    load(module)
    resolve_name(_FOLLOWERS[module.__name__])


# First, since a path below a package may have the name of a file in it.
sys.meta_path.insert(0, _Finder())
sys.meta_path.insert(0, _FollowerFinder())
for _name, _follower in _FOLLOWERS.items():
    if _name in sys.modules:
        resolve_name(_follower)
