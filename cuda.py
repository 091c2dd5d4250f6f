"""CUDA devices (`flow.cuda`): torch's functions, and random state that is one for all devices.

Without a CUDA device they do what torch's do. Kernels run on torch's current stream, so its streams
and events order and time them.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch.cuda import (
    Event,
    ExternalStream,
    OutOfMemoryError,
    Stream,
    StreamContext,
    can_device_access_peer,
    clock_rate,
    cudart,
    current_blas_handle,
    current_device,
    current_stream,
    default_stream,
    device,
    device_count,
    device_of,
    empty_cache,
    get_allocator_backend,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    get_per_process_memory_fraction,
    get_sync_debug_mode,
    host_memory_stats,
    init,
    ipc_collect,
    is_available,
    is_bf16_supported,
    is_current_stream_capturing,
    is_initialized,
    is_tf32_supported,
    list_gpu_processes,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    memory_usage,
    nvtx,
    power_draw,
    profiler,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
    set_device,
    set_per_process_memory_fraction,
    set_stream,
    set_sync_debug_mode,
    stream,
    synchronize,
    temperature,
    utilization,
)

from .compat import cuda_amp as amp
from .compat.missing_names import CUDA as _MISSING
from .engine.argument_types import DeviceLike
from .engine.generator import default_generator
from .engine.ops.typed_tensors import CUDA_TENSORS as _CUDA_TENSORS
from .errors import OnefoldValueError
from .graph.unsupported import missing_attribute as _missing_attribute

__all__ = [
    "Event",
    "ExternalStream",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "amp",
    "can_device_access_peer",
    "clock_rate",
    "cudart",
    "current_blas_handle",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_allocator_backend",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "get_sync_debug_mode",
    "host_memory_stats",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "list_gpu_processes",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "memory_usage",
    "nvtx",
    "power_draw",
    "profiler",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
    "synchronize",
    "temperature",
    "utilization",
]

__path__: list[str] = []  # compat/import_paths.py leads to what is below it

# Legacy constructors: FloatTensor and others.
globals().update(_CUDA_TENSORS)

# Random numbers do not depend on the device, so there is one state, that of `flow.manual_seed`.


def manual_seed(seed: int) -> None:
    """Seed the default generator, which serves every device, as `flow.manual_seed` does."""
    default_generator.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """The same as `manual_seed`."""
    default_generator.manual_seed(seed)


def seed() -> None:
    """Give the default generator a random seed; all processes of a job call it together."""
    default_generator.seed()


def seed_all() -> None:
    """The same as `seed`."""
    default_generator.seed()


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state(device: DeviceLike = "cuda") -> tuple[int, int]:
    """The state of the default generator, whatever the device."""
    return default_generator.get_state()


def get_rng_state_all() -> list[tuple[int, int]]:
    """The state of the default generator, once for each device."""
    return [default_generator.get_state()] * device_count()


def set_rng_state(new_state: Sequence[int], device: DeviceLike = "cuda") -> None:
    """Continue from a state that `get_rng_state` gave."""
    default_generator.set_state(new_state)


def set_rng_state_all(new_states: Sequence[Sequence[int]]) -> None:
    """Continue from the states that `get_rng_state_all` gave, which are all the same.

    Raises OnefoldValueError where they differ: there is one generator for all devices.
    """
    if any(tuple(state) != tuple(new_states[0]) for state in new_states):
        raise OnefoldValueError(
            f"set_rng_state_all: one generator serves all devices, so the states must be the same, "
            f"but got {list(new_states)}"
        )
    for state in new_states[:1]:
        default_generator.set_state(state)


def __getattr__(name: str) -> object:
    if name == "_initialized":  # programs read torch's flag before they ask for states
        return is_initialized()
    raise _missing_attribute(_MISSING, __name__, name)
