"""A cluster that is only planned: a block in which any number of ranks hold no data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from ..distributed.world import planned_world
from ..errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError, PlacementError
from . import interpreter
from .generator import default_generator
from .placement import Placement


@dataclass(frozen=True)
class Cluster:
    """The cluster of a `planning` block: ranks 0 to `size - 1`, on hardware of this name."""

    size: int
    hardware: str | Path | None = None

    def meshes(self, *shape: int, type: str = "cuda") -> list[Placement]:
        """All ranks in meshes of this shape, one after the other, as for the stages of a pipeline.

        Raises PlacementError when the mesh does not divide the cluster.

        >>> import onefold as flow
        >>> with flow.planning(4096) as cluster:
        ...     stages = cluster.meshes(8, 8)
        >>> len(stages), stages[1].shape, stages[1].flat_ranks[0]
        (64, (8, 8), 64)
        """
        if not shape or min(shape) < 1:
            raise PlacementError(
                f"meshes: the sizes of a mesh are integers of at least 1, but got {shape!r}; "
                "write for instance cluster.meshes(8, 8)"
            )
        each, name = prod(shape), " x ".join(map(str, shape))
        count, left = divmod(self.size, each)
        if left:
            raise PlacementError(
                f"meshes: {self.size:,} ranks cannot be divided into meshes of {name} ranks: "
                f"{count:,} of them have {count * each:,} ranks, {count + 1:,} have "
                f"{(count + 1) * each:,}; change the mesh, or the size of flow.planning"
            )
        ranks = np.arange(self.size).reshape(count, *shape)
        return [Placement(type, mesh) for mesh in ranks]


_planned: list[Cluster] = []  # of the blocks that are open, the innermost last


def planned() -> Cluster | None:
    """The cluster of the `planning` block that this is called in."""
    return _planned[-1] if _planned else None


@contextmanager
def planning(size: int, hardware: str | Path | None = None) -> Iterator[Cluster]:
    """A block that plans for a cluster of `size` ranks, which need not exist.

    Modules, optimizers and inputs that are made there have shapes, dtypes and layouts but no data,
    so that they take no memory, whatever their size. Graphs compile, and say for any of the ranks
    what it would do and hold: `graph.plan(rank)`, `graph.memory(rank)`, `graph.schedule()`, and
    `graph.summary()` for all ranks together. A call of a graph only compiles it. Placements may
    name "cuda" on a machine without a GPU; what is local is on torch's "meta" device. To read a
    value, or to save one, raises OnefoldRuntimeError. `hardware` is the machine type for which
    `graph.simulate()` is, unless it is given another: a name, or the path of a TOML file.

    The block is for all threads of the process. After it the world and the default generator are
    as before. Raises OnefoldTypeError and OnefoldValueError for what is no size.

    >>> import onefold as flow
    >>> with flow.planning(size=4096):
    ...     p = flow.placement("cuda", range(4096))
    ...     flow.nn.Linear(10**6, 10**6, placement=p, sbp=flow.sbp.split(0)).weight.shape
    torch.Size([1000000, 1000000])
    """
    if isinstance(size, bool) or not isinstance(size, int):
        raise OnefoldTypeError(f"planning: size must be an integer, but got {size!r}")
    if size < 1:
        raise OnefoldValueError(f"planning: size must be at least 1, but got {size}")
    if hardware is not None and not isinstance(hardware, (str, Path)):
        raise OnefoldTypeError(
            "planning: hardware must be the name of a machine type or the path of its file, but "
            f"got {hardware!r}"
        )
    if interpreter.capturing():
        raise OnefoldRuntimeError(
            "planning: a graph is being captured; enter the block before the graph is called"
        )
    state = default_generator.get_state()
    try:
        with planned_world(size):
            _planned.append(Cluster(size, hardware))
            try:
                yield _planned[-1]
            finally:
                _planned.pop()
    finally:
        default_generator.set_state(state)
