"""`flow.boxing.nccl`: OneFlow's switches for how boxing communicates.

Programs that set them run unchanged. There is nothing to switch here: boxing always takes the route
with the fewest bytes, on a stream of its own, and graphs bucket gradients by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from .graph.setting_checks import integer, switch

_SWITCHES = """
    allow_fuse_all_gather allow_fuse_all_reduce allow_fuse_broadcast allow_fuse_mixed_ops
    allow_fuse_reduce allow_fuse_reduce_scatter disable_group_boxing_by_dst_parallel
    enable_all_to_all enable_mixed_fusion enable_use_buffer_to_fuse_all_reduce
    enable_use_compute_stream
""".split()
_NUMBERS = "set_fusion_max_ops_num set_fusion_threshold_mbytes set_stream_num".split()


def _setter(
    name: str, check: Callable[..., object], default: bool | None = None
) -> Callable[..., None]:
    def setter(value: object = default) -> None:
        check(f"boxing.nccl.{name}", value)

    setter.__name__ = setter.__qualname__ = name
    setter.__doc__ = "Accepted, and without effect; see `onefold.boxing`."
    return setter


nccl = SimpleNamespace(
    **{name: _setter(name, switch, True) for name in _SWITCHES},
    **{name: _setter(name, integer) for name in _NUMBERS},
)
