"""torch.distributed.tensor.parallel: parallelize_module, a model's tensor parallelism by a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import TypeVar

from ..engine.ops.cross_entropy import local_targets
from ..errors import OnefoldTypeError, OnefoldValueError, warn
from ..nn.module import Module
from .device_mesh import DeviceMesh, current_mesh
from .parallel_styles import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)

__all__ = [
    "ColwiseParallel",
    "ParallelStyle",
    "PrepareModuleInput",
    "PrepareModuleInputOutput",
    "PrepareModuleOutput",
    "RowwiseParallel",
    "SequenceParallel",
    "loss_parallel",
    "parallelize_module",
]

M = TypeVar("M", bound=Module)

__path__: list[str] = []  # import_paths.py leads to what is below it


def parallelize_module(
    module: M,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | Mapping[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> M:
    """Let modules of a model take part in tensor parallelism, in place, as a plan says.

    The plan is a style, or a dict from paths of submodules (with patterns of fnmatch) to styles.
    The mesh has one axis; of a larger one take `mesh["tp"]`. Parameters of modules that the plan
    names become global over it, from the values of its first rank, or from each rank's own with
    `src_data_rank=None`; the rest of the model stays local, with equal values on all of its ranks.
    To split parameters over the other axis too, call `fully_shard(model, mesh=mesh["dp"])`
    afterwards. Paths without a module are warned about. Raises OnefoldTypeError for what is no
    module, mesh or style, OnefoldValueError for a mesh of several axes.

    >>> import onefold as flow
    >>> mesh = flow.distributed.init_device_mesh("cpu", (2,))
    >>> model = flow.nn.Sequential(flow.nn.Linear(4, 8), flow.nn.ReLU(), flow.nn.Linear(8, 4))
    >>> plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    >>> model = parallelize_module(model, mesh, plan)
    >>> [w.placements[0] for w in model.parameters()]
    [Shard(dim=0), Shard(dim=0), Shard(dim=1), Replicate()]
    >>> model(flow.ones(2, 4)).is_local
    True
    """
    if not isinstance(module, Module):
        raise OnefoldTypeError(
            f"parallelize_module needs an onefold Module, but got {type(module).__name__}"
        )
    device_mesh = current_mesh() if device_mesh is None else device_mesh
    if not isinstance(device_mesh, DeviceMesh):
        raise OnefoldTypeError(
            "parallelize_module: device_mesh must be a DeviceMesh, such as "
            f"init_device_mesh('cpu', (2,)), but got {device_mesh!r}"
        )
    if device_mesh.ndim != 1:
        raise OnefoldValueError(
            f"parallelize_module takes a mesh of one axis, but got {device_mesh}; name it, as in "
            "mesh['tp']"
        )
    if parallelize_plan is None:
        warn("parallelize_module: without a plan nothing is changed", UserWarning)
        return module
    plan: object = (
        {"": parallelize_plan} if isinstance(parallelize_plan, ParallelStyle) else parallelize_plan
    )
    if not isinstance(plan, Mapping) or not all(
        isinstance(style, ParallelStyle) for style in plan.values()
    ):
        raise OnefoldTypeError(
            "parallelize_module: a plan is a style, such as ColwiseParallel(), or a dict from "
            f"paths of modules to styles, but got {parallelize_plan!r}"
        )
    for path, style in plan.items():
        style.src_data_rank = src_data_rank
        found = [*_matching(module, path)]
        if not found:
            warn(
                f"parallelize_module: no module of {type(module).__name__} matches {path!r}, which "
                f"is left out; it has {', '.join(n for n, _ in module.named_children())}",
                UserWarning,
            )
        for each in found:
            style._apply(each, device_mesh)
    return module


def _matching(module: Module, path: str) -> Iterator[Module]:
    """The submodules whose paths match, each part of them one of the pattern."""
    if not path:
        yield module
        return
    pattern, _, rest = path.partition(".")
    for name, child in module.named_children():
        if fnmatchcase(name, pattern):
            yield from _matching(child, rest)


@contextmanager
def loss_parallel() -> Iterator[None]:
    """A block in which `cross_entropy` of global logits takes local targets, equal on their ranks.

    Logits may stay split over classes, and no rank gathers them, in the block and outside of it.
    The result is global.
    """
    local_targets.push(True)
    try:
        yield
    finally:
        local_targets.pop()
