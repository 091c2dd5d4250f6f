"""FunctionConfig: the settings of one job, made before it is traced."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..errors import OnefoldTypeError
from .ignored import note_ignored
from .scope import DeviceScope, View
from .train_conf import TrainConf

# Settings of OneFlow's compiler and of cuDNN that have nothing to set here, and why.
_IGNORED = {
    "enable_inplace": "steps of a program run in place wherever that changes no result",
    "prune_parallel_cast_ops": "layouts that change nothing are never boxed",
    "prune_cast_to_static_shape_ops": "shapes are always static",
    "prune_amp_white_identity_ops": "mixed precision adds no such ops",
    "concurrency_width": "ops run in the order of the program",
    "all_reduce_fp16": "gradients are added in their own dtype",
    "enable_nccl_hierarchical_all_reduce": "the collective library decides",
    "use_boxing_v2": "there is one way of boxing",
    "use_nccl": "the devices decide",
    "do_parallel_cast_before_widening_type_cast": "the engine chooses where to box",
    "enable_keep_header_only": "the engine chooses what is kept",
    "enable_reuse_mem": "memory is always used again",
    "enable_float_compute_for_half_gemm": "products of half precision are always summed in float32",
    "enable_fuse_add_to_output": "chains of ops are always fused",
    "enable_fuse_model_update_ops": "an update is always one call for all variables",
    "enable_fuse_cast_scale": "chains of ops are always fused",
    "enable_gradients_stats_aggregation": "a norm is always one reduction over all gradients",
    "enable_qat": "there is no training for quantized inference",
    "enable_auto_parallel": "layouts are chosen op by op",
    "use_memory_allocation_algorithm_v2": "there is one algorithm",
    "static_mem_alloc_policy_white_list": "there is one policy",
    "cudnn_conv_use_deterministic_algo_only": "kernels are deterministic",
    "enable_cudnn_fused_normalization_add_relu": "chains of ops are always fused",
    "exp_run_conf": "there are no experiments to run",
    **dict.fromkeys(
        """all_reduce_group_num all_reduce_lazy_ratio all_reduce_group_min_mbyte
        all_reduce_group_size_warmup""".split(),
        "gradients are grouped by their sizes",
    ),
    **dict.fromkeys(
        """use_xla_jit use_tensorrt cudnn_buf_limit_mbyte cudnn_conv_enable_pseudo_half
        cudnn_conv_enable_true_half cudnn_conv_force_bwd_data_algo
        cudnn_conv_force_bwd_filter_algo cudnn_conv_force_fwd_algo
        cudnn_conv_heuristic_search_algo enable_cudnn enable_cudnn_conv_pseudo_half""".split(),
        "kernels are Triton's",
    ),
}


class FunctionConfig:
    """The settings of one job; `flow.function_config()` makes one.

    Example:
        config = flow.function_config()
        config.default_data_type(flow.float)
        config.default_logical_view(flow.scope.mirrored_view())
    """

    def __init__(self) -> None:
        self.train = TrainConf()
        self.dtype = torch.float32
        self.view: str | None = None
        self.devices: DeviceScope | None = None
        self.amp = False
        self.splits_state = False

    def default_data_type(self, value: torch.dtype = torch.float32) -> None:
        """The dtype of variables that name none."""
        if not isinstance(value, torch.dtype):
            raise OnefoldTypeError(f"default_data_type needs a dtype, but got {value!r}")
        self.dtype = value

    def default_logical_view(self, value: View) -> None:
        """The view of the job: `flow.scope.mirrored_view()` or `flow.scope.consistent_view()`."""
        if not isinstance(value, View):
            raise OnefoldTypeError(
                "default_logical_view needs flow.scope.mirrored_view() or "
                f"flow.scope.consistent_view(), but got {value!r}"
            )
        self.view = value.name

    default_distribute_strategy = default_logical_view  # in the words of the first generation

    def default_placement_scope(self, value: DeviceScope) -> None:
        """The devices of the job: `flow.scope.placement(...)`."""
        if not isinstance(value, DeviceScope):
            raise OnefoldTypeError(
                f'default_placement_scope needs flow.scope.placement("gpu", "0:0-1"), but got '
                f"{value!r}"
            )
        self.devices = value

    def enable_auto_mixed_precision(self, value: bool = True) -> None:
        """Run matrix products in half precision."""
        self.amp = bool(value)

    def enable_non_distributed_optimizer(self, value: bool = True) -> None:
        """Split what the optimizer keeps over the devices (ZeRO)."""
        self.splits_state = bool(value)

    def __getattr__(self, name: str) -> Callable[..., None]:
        reason = _IGNORED.get(name)
        if reason is None:
            raise AttributeError(f"a function_config has no setting named {name!r}")

        def accept(*values: object) -> None:
            note_ignored("function_config", name, values[0] if values else True, reason)

        return accept


def function_config() -> FunctionConfig:
    """New settings for a job."""
    return FunctionConfig()
