"""torch.autograd.profiler (`flow.autograd.profiler`): `flow.profiler` under its older names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from torch.autograd.profiler import emit_itt, emit_nvtx
from torch.profiler import ProfilerActivity, supported_activities

from .averages import AverageList
from .event_recorder import record_function
from .events import Event
from .profile import profile as _newer

__all__ = ["emit_itt", "emit_nvtx", "profile", "record_function"]


class profile:
    """`flow.profiler.profile` of a whole block; nothing is recorded unless `enabled`.

    The other arguments are torch's: `use_cpu` and `use_cuda` choose the kernels that are recorded,
    and `record_shapes` adds the shapes of inputs. Modules and lines are recorded anyway. Methods
    raise OnefoldRuntimeError before something was recorded.

    >>> import onefold as flow
    >>> with flow.autograd.profiler.profile() as prof:
    ...     y = flow.ones(3).exp()
    >>> [each.count for each in prof.key_averages() if each.key == "exp"]
    [1]
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = True,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = True,
        use_cpu: bool = True,
    ) -> None:
        self.enabled = enabled
        chosen = [ProfilerActivity.CPU] * use_cpu
        chosen += [ProfilerActivity.CUDA] * (use_cuda or use_device == "cuda")
        known = supported_activities()
        activities = [each for each in chosen if each in known]
        self._profile = _newer(activities=activities, record_shapes=record_shapes)

    def __enter__(self) -> Self:
        if self.enabled:
            self._profile.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.enabled:
            self._profile.stop()

    @property
    def function_events(self) -> list[Event]:
        """What was recorded, in the order of time."""
        return self._profile.events()

    def key_averages(self, group_by_input_shape: bool = False) -> AverageList:
        """The events added up by op."""
        return self._profile.key_averages(group_by_input_shape)

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_name_column_width: int = 55
    ) -> str:
        """The events added up by op, as `key_averages().table` shows them."""
        return self.key_averages().table(sort_by, row_limit, max_name_column_width)

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write what was recorded as a JSON file that Perfetto and chrome://tracing open."""
        self._profile.export_chrome_trace(path)

    def __str__(self) -> str:
        return self.table()
