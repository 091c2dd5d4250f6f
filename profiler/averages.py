"""Averages: events added up by op, module or line, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from ..distributed.comm_log import table
from ..errors import OnefoldValueError
from .events import Event

By: TypeAlias = Literal["op", "module", "line", "kernel"]

_SHOWN = ("op", "communication", "optimizer", "user")


@dataclass
class Average:
    """Events of one key, added up. Times are in microseconds.

    CPU time is that of the host: kernels on the CPU, communication, and what is left, which is
    the work of the host itself.
    """

    key: str
    input_shapes: tuple[tuple[int, ...], ...] = ()
    count: int = 0
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0  # without other events inside, such as communication
    kernel_time_total: float = 0.0
    comm_time_total: float = 0.0
    comm_bytes: int = 0
    device_time_total: float = 0.0
    self_device_time_total: float = 0.0  # without other events inside

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total / self.count

    @property
    def device_time(self) -> float:
        return self.device_time_total / self.count

    @property
    def host_time_total(self) -> float:
        return self.cpu_time_total - self.kernel_time_total - self.comm_time_total

    def add(self, event: Event) -> None:
        self.count += 1
        self.device_time_total += event.device_time
        self.self_device_time_total += event.self_device_time
        if event.kind == "device":
            return  # it takes no time of the host
        self.cpu_time_total += event.duration
        self.self_cpu_time_total += event.duration - event.inner_time
        if event.kind == "communication":  # its kernels are copies
            self.comm_time_total += event.duration
        else:
            self.comm_time_total += event.comm_time
            self.kernel_time_total += event.kernel_time
        self.comm_bytes += event.comm_bytes


# The columns of a table: title, and the field.
_COLUMNS = (
    ("Self CPU", "self_cpu_time_total"),
    ("CPU total", "cpu_time_total"),
    ("CPU time avg", "cpu_time"),
    ("Host", "host_time_total"),
    ("Kernels", "kernel_time_total"),
    ("Comm", "comm_time_total"),
    ("Self device", "self_device_time_total"),
    ("Device total", "device_time_total"),
)
_SORTS = {
    "cpu_time",
    "count",
    "comm_bytes",
    "device_time",
    "cuda_time",
    "cuda_time_total",
    "self_cuda_time_total",
    *(name for _, name in _COLUMNS),
}


class AverageList(list[Average]):
    """Averages that can be shown."""

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_name_column_width: int = 55
    ) -> str:
        """A row for each, the largest first where `sort_by` names a field of `Average`.

        `row_limit` -1 shows all. Raises OnefoldValueError for another `sort_by`.
        """
        rows = list(self)
        if sort_by is not None:
            if sort_by not in _SORTS:
                raise OnefoldValueError(
                    f"table: sort_by must be one of {', '.join(sorted(_SORTS))}, not {sort_by!r}"
                )
            field = sort_by.replace("cuda", "device")
            rows.sort(key=lambda row: -getattr(row, field))
        rows = rows if row_limit == -1 else rows[:row_limit]
        columns = [
            column
            for column in _COLUMNS
            if "device" not in column[1] or any(row.device_time_total for row in self)
        ]
        shapes = any(row.input_shapes for row in self)
        titles = ["Name", *(title for title, _ in columns), "Comm bytes", "# of Calls"]
        lines = [[*titles, "Input Shapes"] if shapes else titles]
        for row in rows:
            name = row.key
            if len(name) > max_name_column_width:
                name = name[: max_name_column_width - 3] + "..."
            cells = [name, *(_time(getattr(row, field)) for _, field in columns)]
            cells += [str(row.comm_bytes), str(row.count)]
            lines.append([*cells, str([list(s) for s in row.input_shapes])] if shapes else cells)
        return table(lines)

    def __str__(self) -> str:
        return self.table()


def averages(events: Sequence[Event], group_by: By, by_shape: bool = False) -> AverageList:
    """Events added up by op, module, line or kernel, in the order in which they came."""
    if group_by not in get_args(By):
        raise OnefoldValueError(
            f"key_averages: group_by must be one of {', '.join(get_args(By))}, not {group_by!r}"
        )
    found: dict[object, Average] = {}
    for event in events:
        if group_by == "kernel":
            counted = event.kind in ("kernel", "device")
        else:
            counted = event.kind in _SHOWN
        if group_by in ("module", "line"):
            # What is inside another one is in its time already.
            parent = event.parent
            counted = counted and event.kind != "user"
            counted = counted and (parent is None or parent.kind in ("module", "user"))
        if counted:
            name = event.name if group_by in ("op", "kernel") else getattr(event, group_by)
            shapes = event.input_shapes if by_shape else ()
            found.setdefault((name, shapes), Average(name, shapes)).add(event)
    return AverageList(found.values())


def _time(microseconds: float) -> str:
    for limit, unit, size in ((1e3, "us", 1.0), (1e6, "ms", 1e3)):
        if abs(microseconds) < limit:
            return f"{microseconds / size:.3f}{unit}"
    return f"{microseconds / 1e6:.3f}s"
