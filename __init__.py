"""Onefold trains neural networks on many devices from a program written for one.

A tensor is one logical value laid over many devices: the program says where it lives (placement)
and how it is laid out (sbp); the engine infers layouts, moves data and computes gradients.
"""

from . import early_interrupt as _early_interrupt  # before torch, whose import takes long

# isort: split
import builtins as _builtins
import gc as _gc
from importlib import import_module as _import_module
from math import e, inf, nan, pi
from types import ModuleType as _ModuleType

import torch as _torch

# torch has so many objects that collecting garbage among them would take a third of the import.
_collects = _gc.isenabled()
_gc.disable()
try:
    from . import (
        amp as amp,
        checkpoint as checkpoint,
        comm as comm,
        errors as errors,
        fft as fft,
        func as func,
        linalg as linalg,
        nn as nn,
        optim as optim,
        parallel as parallel,
        sparse as sparse,
        special as special,
    )
    from .checkpoint.save_load import load, save
    from .compat import import_paths as _import_paths
    from .compat.missing_names import NAMES as _MISSING
    from .compat.private_names import NAMES as _PRIVATE
    from .engine import (
        autograd_api as autograd,
        env_api as env,
        sbp as sbp,
    )
    from .engine.anomaly import is_anomaly_enabled
    from .engine.argument_errors import public_functions as _public_functions
    from .engine.autocast import (
        autocast,
        clear_autocast_cache,
        get_autocast_cpu_dtype,
        get_autocast_dtype,
        get_autocast_gpu_dtype,
        is_autocast_cpu_enabled,
        is_autocast_enabled,
    )
    from .engine.cluster import planning
    from .engine.dispatch_counters import FallbackWarning
    from .engine.generator import (
        Generator,
        default_generator,
        get_rng_state,
        initial_seed,
        manual_seed,
        seed,
        set_rng_state,
    )
    from .engine.grad_mode import (
        enable_grad,
        inference_mode,
        is_grad_enabled,
        no_grad,
        set_grad_enabled,
    )
    from .engine.names import find_torch_form as _find_torch_form
    from .engine.ops import PUBLIC as _PUBLIC, signal as signal
    from .engine.ops.typed_tensors import CPU_TENSORS as _CPU_TENSORS, set_default_tensor_type
    from .engine.placement import Placement
    from .engine.tensor import Tensor
    from .engine.values import from_dlpack, from_numpy, from_torch, to_dlpack
    from .errors import OnefoldError
    from .func import vmap
    from .graph.recaptures import RecaptureWarning
    from .graph.stages.compile_stages import PipelineWarning
    from .graph.unsupported import missing_attribute as _missing_attribute
    from .nn.compile import compile
    from .nn.layout_rules import LocalPartsWarning
    from .optim import swa_utils as _swa_utils
    from .optim.grad_scaler import GradScaler
    from .optim.replicas import check_replicas
    from .sparse import sparse_coo_tensor
    from .utils.visualize import visualize_layout
finally:
    if _collects:
        _gc.enable()


__version__ = "0.1.0"

newaxis = None

placement = Placement

# Types and dtypes are torch's.
Size = _torch.Size
device = _torch.device
dtype = _torch.dtype
layout, memory_format = _torch.layout, _torch.memory_format
finfo, iinfo = _torch.finfo, _torch.iinfo
Future = _torch.futures.Future
SymInt, SymFloat, SymBool = _torch.SymInt, _torch.SymFloat, _torch.SymBool
get_default_dtype, set_default_dtype = _torch.get_default_dtype, _torch.set_default_dtype
OutOfMemoryError = _torch.OutOfMemoryError
can_cast, promote_types = _torch.can_cast, _torch.promote_types
broadcast_shapes = _torch.broadcast_shapes
bool, uint8, int8, int16, int32, int64 = (
    _torch.bool, _torch.uint8, _torch.int8, _torch.int16, _torch.int32, _torch.int64
)  # fmt: skip
float16, bfloat16, float32, float64 = (
    _torch.float16, _torch.bfloat16, _torch.float32, _torch.float64
)  # fmt: skip
complex32, complex64, complex128 = _torch.complex32, _torch.complex64, _torch.complex128
short, int, long, half, float, double, chalf, cfloat, cdouble = (
    int16, int32, int64, float16, float32, float64, complex32, complex64, complex128
)  # fmt: skip
uint16, uint32, uint64 = _torch.uint16, _torch.uint32, _torch.uint64
float8_e4m3fn, float8_e5m2 = _torch.float8_e4m3fn, _torch.float8_e5m2
sparse_coo, sparse_csr, sparse_csc = _torch.sparse_coo, _torch.sparse_csr, _torch.sparse_csc
sparse_bsr, sparse_bsc, jagged = _torch.sparse_bsr, _torch.sparse_bsc, _torch.jagged
strided, contiguous_format = _torch.strided, _torch.contiguous_format
spmm = sparse.mm
preserve_format = _torch.preserve_format
channels_last, channels_last_3d = _torch.channels_last, _torch.channels_last_3d

# Settings of the process.
get_num_threads, set_num_threads = _torch.get_num_threads, _torch.set_num_threads
get_num_interop_threads, set_num_interop_threads = (
    _torch.get_num_interop_threads, _torch.set_num_interop_threads
)  # fmt: skip
set_flush_denormal = _torch.set_flush_denormal
set_printoptions = _torch.set_printoptions
get_default_device, set_default_device = _torch.get_default_device, _torch.set_default_device
get_float32_matmul_precision, set_float32_matmul_precision = (
    _torch.get_float32_matmul_precision, _torch.set_float32_matmul_precision
)  # fmt: skip
use_deterministic_algorithms = _torch.use_deterministic_algorithms
are_deterministic_algorithms_enabled = _torch.are_deterministic_algorithms_enabled
is_deterministic_algorithms_warn_only_enabled = _torch.is_deterministic_algorithms_warn_only_enabled

# Every op under its name.
globals().update(_public_functions(__name__, {name: _find_torch_form(name) for name in _PUBLIC}))
globals().update(_CPU_TENSORS)
globals().update(_PRIVATE)
_others = (
    "from_dlpack from_numpy from_torch get_autocast_dtype set_default_tensor_type to_dlpack "
    "visualize_layout"
).split()
globals().update(_public_functions(__name__, {name: globals()[name] for name in _others}))


def is_tensor(value: object) -> _builtins.bool:
    """Whether `value` is an onefold Tensor."""
    return isinstance(value, Tensor)


# They import what a program may never need.
ON_DEMAND = tuple(
    """
    _C __config__ _dynamo _inductor _utils accelerator auto backends boxing compiler cuda
    distributions futures fx hub jit library mps multiprocessing onnx ops overrides profiler
    quasirandom random serialization testing types utils version xpu
    """.split()
)


def __getattr__(name: str) -> _ModuleType:
    if name in ON_DEMAND:
        return _import_module(f"{__name__}.{name}")
    if name in _MISSING:
        raise _missing_attribute(_MISSING, __name__, name)
    raise AttributeError(f"module 'onefold' has no attribute {name!r}")


__all__ = sorted(
    [
        *_PUBLIC,
        *_CPU_TENSORS,
        *"""
        FallbackWarning Generator GradScaler LocalPartsWarning OnefoldError OutOfMemoryError
        PipelineWarning RecaptureWarning Size Tensor amp are_deterministic_algorithms_enabled
        autocast autograd
        bfloat16 bool broadcast_shapes can_cast cdouble cfloat chalf channels_last channels_last_3d
        check_replicas checkpoint clear_autocast_cache compile complex128 complex32 complex64
        contiguous_format default_generator device double dtype e enable_grad env errors fft finfo
        float float16 float32 float64 float8_e4m3fn float8_e5m2 from_dlpack from_numpy from_torch
        func get_autocast_cpu_dtype get_autocast_dtype get_autocast_gpu_dtype get_default_device
        get_default_dtype get_float32_matmul_precision get_num_interop_threads get_num_threads
        get_rng_state half iinfo inf inference_mode initial_seed int int16 int32 int64 int8
        is_anomaly_enabled is_autocast_cpu_enabled is_autocast_enabled
        is_deterministic_algorithms_warn_only_enabled is_grad_enabled is_tensor jagged layout linalg
        load long manual_seed memory_format nan newaxis nn no_grad optim parallel pi placement
        planning preserve_format profiler promote_types save sbp seed set_default_device
        set_default_dtype set_default_tensor_type set_float32_matmul_precision set_flush_denormal
        set_grad_enabled set_num_interop_threads set_num_threads set_printoptions set_rng_state
        short signal sparse sparse_bsc sparse_bsr sparse_coo sparse_coo_tensor sparse_csc sparse_csr
        special spmm strided to_dlpack uint16 uint32 uint64 uint8 use_deterministic_algorithms
        visualize_layout vmap
        """.split(),
    ]
)
