"""Unsupported settings of graphs and modules, each with what to use in its place."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import OnefoldRuntimeError


class Unsupported(OnefoldRuntimeError, AttributeError):
    """A name that is not supported; `hasattr` is False for it."""


_LAYOUTS = (
    "config.enable_auto_parallel() finds the layouts with the least modeled time, whatever the "
    "graph's form, with the costs that eager mode has; leave it out"
)
_PLANNED = "memory is planned at every compilation; graph.memory(rank) shows the plan; leave it out"
_UPDATES = "every update is of all parameters of a group at once; leave it out"

CONFIG: Mapping[str, str] = {
    "enable_auto_memory": (
        "keep less with module.to(nn.graph.GraphModule).activation_checkpointing = True, or with "
        "config.enable_zero(True)"
    ),
    "enable_auto_parallel_sbp_collector": _LAYOUTS,
    "enable_auto_parallel_trunk_algo": _LAYOUTS,
    "enable_choose_best_memory_allocation": _PLANNED,
    "enable_compress_memory": _PLANNED,
    "enable_cudnn_conv_heuristic_search_algo": (
        "convolutions are torch's; set torch.backends.cudnn.benchmark = False for its heuristics"
    ),
    "enable_fused_model_update_cast": (
        "parameters stay float32 and config.enable_amp casts each once a step; leave it out"
    ),
    "enable_multi_tensor_update": _UPDATES,
    "enable_straighten_algorithm": (
        "a program runs in the order in which build() wrote it, which print(graph.program) shows; "
        "leave it out"
    ),
    "set_auto_parallel_computation_cost_ratio": _LAYOUTS,
    "set_auto_parallel_wait_time": _LAYOUTS,
    "set_outputs_buffer_size": (
        "one call of a graph runs at a time, so that there is nothing to buffer; leave it out"
    ),
    "set_zero_redundancy_optimizer_min_size_after_split": (
        "call config.enable_zero(True, shard_min_size=...)"
    ),
    "set_zero_redundancy_optimizer_mode": "call config.enable_zero(True, stage=1, 2 or 3)",
}

_SHARED = (
    "parameters and optimizer state are those of the modules, so graphs with the same modules, and "
    "all input shapes of one graph, share them already; leave it out"
)
_RUNTIME = (
    "compiled graphs are not saved, since a capture takes no longer than reading one; save "
    "graph.state_dict(), and compile at the first call or by graph._compile(*inputs)"
)

_MODES = (
    "modes and parameters are those of the graph's modules, which it follows; call it on them, as "
    "in graph.model.eval()"
)

GRAPH: Mapping[str, str] = {
    "enable_save_runtime_state_dict": _RUNTIME,
    "enable_shared": _SHARED,
    "eval": _MODES,
    "load_runtime_state_dict": _RUNTIME,
    "parameters": _MODES,
    "runtime_state_dict": _RUNTIME,
    "runtime_state_dict_to": _RUNTIME,
    "share_from": _SHARED,
    "train": _MODES,
    "zero_grad": "a call of a graph leaves no gradients; leave it out",
}

# OneFlow's wrappers of what is assigned to a graph.
PROXIES: Mapping[str, str] = dict.fromkeys(
    [
        "Proxy", "ProxyModule", "ProxyModuleDict", "ProxyModuleList", "ProxyParameterDict",
        "ProxyParameterList", "ProxySequential", "ProxyTensor",
    ],
    "modules that are assigned to a graph stay as they are: test them by their own classes, and "
    "make settings on module.to(nn.graph.GraphModule)",
)  # fmt: skip


def missing_attribute(table: Mapping[str, str], owner: str, name: str) -> AttributeError:
    """The AttributeError for a name that `owner` lacks; it says what to use instead if known."""
    if name in table:
        return Unsupported(f"{owner}.{name} is not offered: {table[name]}")
    return AttributeError(f"{owner!r} object has no attribute {name!r}")
