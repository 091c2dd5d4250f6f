"""Boxing plans: the steps from one layout to another, with their bytes and time."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from ...distributed.comm_log import table
from ...distributed.provenance import Mark, mark
from ...distributed.world import on_world_change
from ...errors import ShapeError
from ..meta import Meta
from ..placement import Placement
from .boxing_steps import BoxingStep, Copy, title
from .cross_placement import cross_steps
from .path_search import steps_on_one

_CACHED_PLANS = 4096
_SHOWN_GROUPS = 4
_SHOWN_RANKS = 64


@dataclass(frozen=True, eq=False)
class BoxingPlan:
    """The steps by which `run` moves a tensor from layout `src` to `dst`, as data without a device.

    `received(rank)` and `sent(rank)` are bytes, `time` modeled seconds, `print(plan)` a table.
    """

    src: Meta
    dst: Meta
    steps: tuple[BoxingStep, ...]
    programs: dict[Any, Any] = field(default_factory=dict, repr=False)  # see run.py

    @property
    def time(self) -> float:
        """Modeled seconds of all steps."""
        return sum(step.time for step in self.steps)

    @property
    def aliases(self) -> bool:
        """Whether output shards may share memory with input shards."""
        return all(step.aliases for step in self.steps)

    @cached_property
    def communicates(self) -> bool:
        """Whether any rank sends anything."""
        return not all(step.local for step in self.steps)

    @cached_property
    def arrival(self) -> Mark:
        """The origin of tensors that every rank holds whole afterwards, for ranks to compare."""
        return mark(f"to {self.dst!r}")

    def received(self, rank: int) -> int:
        """Bytes that `rank` receives from other ranks."""
        return sum(step.received(rank) for step in self.steps if rank in step.ranks)

    def sent(self, rank: int) -> int:
        """Bytes that `rank` sends to other ranks."""
        return sum(step.sent(rank) for step in self.steps if rank in step.ranks)

    def __str__(self) -> str:
        head = f"{self.src!r}\n-> {self.dst!r}"
        if not self.steps:
            return head + "\nnothing to do"
        rows = [("step", "layout", "groups", "received/rank", "time")]
        rows += [_row(step) for step in self.steps]
        rows.append(("total", "", "", "", f"{self.time * 1e6:.1f} us"))
        return f"{head}\n{table(rows)}"


def _row(step: BoxingStep) -> tuple[str, str, str, str, str]:
    groups = step.groups()
    shown = " ".join(str(list(group)) for group in groups[:_SHOWN_GROUPS])
    if len(groups) > _SHOWN_GROUPS:
        shown += f" and {len(groups) - _SHOWN_GROUPS} more"
    counts = sorted({step.received(rank) for rank in step.ranks[:_SHOWN_RANKS]})
    spread = f"{counts[0]} B" if len(counts) == 1 else f"{counts[0]}..{counts[-1]} B"
    return step.kind, title(step), shown or "-", spread, f"{step.time * 1e6:.1f} us"


@lru_cache(maxsize=_CACHED_PLANS)
def plan(src: Meta, dst: Meta) -> BoxingPlan:
    """The plan from `src` to `dst`: any two placements and nd_sbps, one shape and dtype.

    The same on every process. Raises ShapeError when shape or dtype differ or one is local.

    >>> p = onefold.placement("cpu", [0, 1])
    >>> meta = onefold.zeros(8, placement=p, sbp=onefold.sbp.split(0)).meta
    >>> plan(meta, meta).steps
    ()
    """
    if src.shape != dst.shape or src.dtype != dst.dtype:
        raise ShapeError(f"boxing keeps shape and dtype, but was asked to go from {src} to {dst}")
    if src.placement is None or dst.placement is None:
        raise ShapeError(f"boxing is between global layouts, but was asked for {src} to {dst}")
    if src is dst:
        return BoxingPlan(src, dst, ())
    if src.placement is dst.placement:
        return BoxingPlan(src, dst, steps_on_one(src, dst))
    return BoxingPlan(src, dst, _between(src, dst))


# Plans hold placements, which belong to a world.
on_world_change(plan.cache_clear)


def _between(src: Meta, dst: Meta) -> tuple[BoxingStep, ...]:
    """Steps between placements; all bytes travel on one device type, cuda when there is one."""
    steps: list[BoxingStep] = []
    wire = "cuda" if "cuda" in (src.global_placement.type, dst.global_placement.type) else "cpu"
    start = _on(wire, src)
    if start is not src:
        steps.append(Copy(src, start))
    end = _on(wire, dst)
    if start.placement is end.placement:
        steps += steps_on_one(start, end)
    else:
        steps += cross_steps(start, end)
    if end is not dst:
        steps.append(Copy(end, dst))
    return tuple(steps)


def _on(device_type: str, meta: Meta) -> Meta:
    if meta.global_placement.type == device_type:
        return meta
    placement = Placement(device_type, meta.global_placement.ranks)
    return Meta.of(meta.shape, meta.dtype, placement, meta.nd_sbp)
