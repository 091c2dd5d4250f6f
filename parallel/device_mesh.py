"""DeviceMesh: a placement whose axes have names, with torch's functions."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from functools import lru_cache
from math import prod
from types import TracebackType
from typing import Any

import numpy as np

from ..comm.process_groups import ProcessGroup, get_process_group_ranks
from ..distributed.world import world
from ..engine.ops.creation import tensor
from ..engine.own_group import group_placement
from ..engine.placement import Placement, Ranks, SupportsArray
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, OnefoldValueError

__all__ = ["DeviceMesh", "init_device_mesh"]

_STAGES = "pp"  # as torch's documentation names the axis of a pipeline

_entered: ContextVar[tuple[DeviceMesh, ...]] = ContextVar("device_meshes", default=())


def current_mesh() -> DeviceMesh | None:
    """The mesh of the innermost `with` block of one, if there is any."""
    return _entered.get()[-1] if _entered.get() else None


class DeviceMesh:
    """Ranks as an n-d mesh, of which each axis may have a name; or some axes of such a mesh.

    `mesh["tp"]` names an axis of the whole mesh. What is laid out over it is global over the whole
    mesh, and broadcast along the other axes. An axis named "pp" is that of a pipeline's stages, of
    which a rank has one: other axes name those of the ranks with the same stage. In a `with` block
    of a mesh functions take it that are given none. Raises OnefoldValueError for names that do not
    fit.

    >>> import onefold as flow
    >>> mesh = DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("dp", "tp"))
    >>> mesh["tp"].size(), mesh["tp"].placement
    (2, onefold.placement(type="cpu", ranks=[[0, 1], [2, 3]]))
    """

    def __init__(
        self,
        device_type: str,
        mesh: Ranks | SupportsArray,
        *,
        mesh_dim_names: Sequence[str] | None = None,
        backend_override: object = None,
        _init_backend: bool = True,
    ) -> None:
        ranks: Any = mesh.tolist() if isinstance(mesh, Tensor) else mesh
        self.placement = Placement(device_type, ranks)
        self.axes = tuple(range(self.placement.ndim))
        self.mesh_dim_names = _checked_names(mesh_dim_names, self.placement.ndim)
        self._root = self
        self._flattened: dict[str, DeviceMesh] = {}  # of a root, by the names of their axes

    def _of(
        self, placement: Placement, axes: tuple[int, ...], names: tuple[str, ...]
    ) -> DeviceMesh:
        """The mesh of some axes of a placement, with the root of this one."""
        made = object.__new__(DeviceMesh)
        made.placement, made.axes, made.mesh_dim_names = placement, axes, names or None
        made._root, made._flattened = self._root, {}
        return made

    @staticmethod
    def from_group(
        group: ProcessGroup | Sequence[ProcessGroup],
        device_type: str,
        mesh: Ranks | SupportsArray | None = None,
        *,
        mesh_dim_names: Sequence[str] | None = None,
        backend_override: object = None,
    ) -> DeviceMesh:
        """The mesh of a group's ranks, or that of several groups, one for each axis of `mesh`.

        Raises OnefoldValueError for several groups without their mesh, or with another.
        """
        if isinstance(group, ProcessGroup):
            ranks: Any = get_process_group_ranks(group) if mesh is None else mesh
            return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names)
        if mesh is None:
            raise OnefoldValueError(
                f"from_group: mesh= must say how the ranks of {len(group)} groups lie"
            )
        made = DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names)
        found = [list(each.ranks) for each in made.get_all_groups()]
        given = [get_process_group_ranks(each) for each in group]
        if found != given:
            raise OnefoldValueError(
                f"from_group: along the axes of the mesh this rank is among {found}, but the "
                f"groups have the ranks {given}"
            )
        return made

    def __enter__(self) -> DeviceMesh:
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _entered.set(_entered.get()[:-1])

    @property
    def device_type(self) -> str:
        return self.placement.device_type

    @property
    def own_placement(self) -> Placement:
        """The ranks of this mesh that this process works with; see `group_placement`."""
        return group_placement(self.placement, self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple([self.placement.shape[axis] for axis in self.axes])

    @property
    def ndim(self) -> int:
        return len(self.axes)

    @property
    def mesh(self) -> Tensor:
        """The ranks: of some axes of a mesh, those that differ from this rank along them only."""
        found: Tensor = tensor(self._ranks().tolist())
        return found

    def size(self, mesh_dim: int | None = None) -> int:
        """The number of ranks, or that along one axis."""
        return prod(self.shape) if mesh_dim is None else self.shape[mesh_dim]

    def get_rank(self) -> int:
        """The rank of this process; 0 where one process has all of them."""
        return world().rank or 0

    def get_coordinate(self) -> list[int] | None:
        """Where this rank is along each axis; None outside of the mesh."""
        position = self.placement.position.get(self.get_rank())
        if position is None:
            return None
        at = self.placement.coordinate(position)
        return [at[axis] for axis in self.axes]

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Where this rank is along one axis, which may be left out if there is only one.

        Raises OnefoldRuntimeError for several axes, and outside of the mesh.
        """
        if mesh_dim is None and self.ndim != 1:
            raise OnefoldRuntimeError(
                f"get_local_rank: the mesh has {self.ndim} axes; name one of them, mesh_dim="
            )
        at = self.get_coordinate()
        if at is None:
            raise OnefoldRuntimeError(f"rank {self.get_rank()} is not in {self}")
        return at[self._axis(0 if mesh_dim is None else mesh_dim)]

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The ranks that differ from this one along an axis only, as a process group.

        Raises OnefoldRuntimeError where the axis is left out and there are several.
        """
        if mesh_dim is None and self.ndim != 1:
            raise OnefoldRuntimeError(
                f"get_group: the mesh has {self.ndim} axes; name one of them, mesh_dim="
            )
        return self._group(self._axis(0 if mesh_dim is None else mesh_dim))

    def get_all_groups(self) -> list[ProcessGroup]:
        """The process group of each axis."""
        return [self._group(index) for index in range(self.ndim)]

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The mesh of the axes with these names. Raises KeyError for another name."""
        chosen = (names,) if isinstance(names, str) else tuple(names)
        if len(chosen) == 1 and chosen[0] in self._flattened:
            return self._flattened[chosen[0]]
        axes = tuple([self.axes[self._axis(name)] for name in chosen])
        placement = self.placement
        if _STAGES in (self.mesh_dim_names or ()) and _STAGES not in chosen and world().launched:
            stages = self.axes[self._axis(_STAGES)]
            at = placement.coordinate(placement.position.get(self.get_rank(), 0))[stages]
            placement = Placement(self.device_type, np.take(placement.ranks, at, stages))
            axes = tuple([axis - (axis > stages) for axis in axes])
        return self._of(placement, axes, chosen)

    def _get_root_mesh(self) -> DeviceMesh:
        """The mesh of which this one has some axes."""
        return self._root

    def _flatten(
        self, mesh_dim_name: str | None = None, backend_override: object = None
    ) -> DeviceMesh:
        """The mesh of one axis with all ranks of this one, which its root has by that name, too.

        Raises OnefoldRuntimeError without names, OnefoldValueError for a name that is taken.
        """
        if self.mesh_dim_names is None:
            raise OnefoldRuntimeError("_flatten: the axes need names, mesh_dim_names=")
        name = mesh_dim_name or "_".join(self.mesh_dim_names)
        if self.mesh_dim_names == (name,):
            return self
        placement, axis = self.placement, self.axes[0]
        if self.ndim > 1:
            axis = min(self.axes)
            rest = [other for other in range(placement.ndim) if other not in self.axes]
            order = [*rest[:axis], *self.axes, *rest[axis:]]
            shape = [placement.shape[other] for other in rest]
            shape.insert(axis, self.size())
            ranks = np.transpose(placement.ranks, order).reshape(shape)
            placement = Placement(self.device_type, ranks)
        made = self._of(placement, (axis,), (name,))
        taken = name in (self._root.mesh_dim_names or ())
        if taken or self._root._flattened.get(name, made) != made:
            raise OnefoldValueError(f"_flatten: an axis is called {name!r} already; choose another")
        return self._root._flattened.setdefault(name, made)

    def _unflatten(
        self,
        dim: int | str,
        mesh_sizes: Sequence[int],
        mesh_dim_names: Sequence[str],
        backend_override: object = None,
    ) -> DeviceMesh:
        """The mesh in which an axis is several, of these sizes and names.

        Raises OnefoldValueError for sizes and names that do not fit.
        """
        at, sizes = self._axis(dim), tuple(mesh_sizes)
        axis = self.axes[at]
        if len(sizes) != len(mesh_dim_names) or prod(sizes) != self.shape[at]:
            raise OnefoldValueError(
                f"_unflatten: sizes {sizes} with the names {tuple(mesh_dim_names)} cannot replace "
                f"an axis of {self.shape[at]} ranks; their product must be that, and each have a "
                "name"
            )
        before = self.placement.shape
        ranks = self.placement.ranks.reshape(*before[:axis], *sizes, *before[axis + 1 :])
        more = len(sizes) - 1
        axes = [each + more * (each > axis) for each in self.axes]
        axes[at : at + 1] = range(axis, axis + len(sizes))
        names = list(self.mesh_dim_names or [""] * self.ndim)
        names[at : at + 1] = mesh_dim_names
        made = self._of(Placement(self.device_type, ranks), tuple(axes), tuple(names))
        made._root = made
        return made

    def _axis(self, dim: int | str) -> int:
        """The number of an axis among those of this mesh."""
        if isinstance(dim, str):
            if dim not in (self.mesh_dim_names or ()):
                raise KeyError(f"the mesh has no axis {dim!r}; it has {self.mesh_dim_names}")
            return (self.mesh_dim_names or ()).index(dim)
        if not -self.ndim <= dim < self.ndim:
            raise OnefoldValueError(f"the mesh has {self.ndim} axes, without an axis {dim}")
        return dim % self.ndim

    def _group(self, index: int) -> ProcessGroup:
        return _group_of(tuple(self._along((self.axes[index],))))

    def _along(self, axes: tuple[int, ...]) -> list[int]:
        """The ranks that differ from this one along these axes only; from the first, outside."""
        position = self.placement.position.get(self.get_rank(), 0)
        return [self.placement.flat_ranks[i] for i in self.placement.group(position, axes)]

    def _ranks(self) -> np.ndarray:
        return np.array(self._along(self.axes)).reshape(self.shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return self.placement, self.axes, self.mesh_dim_names

    def __repr__(self) -> str:
        names = "" if self.mesh_dim_names is None else f", mesh_dim_names={self.mesh_dim_names}"
        return f"DeviceMesh({self.device_type!r}, {self._ranks().tolist()}{names})"


@lru_cache(maxsize=1024)
def _group_of(ranks: tuple[int, ...]) -> ProcessGroup:
    """The group of these ranks, the same object each time, as programs compare groups."""
    return ProcessGroup(ranks)


def _checked_names(names: Sequence[str] | None, ndim: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    found = tuple(names)
    if len(found) != ndim:
        raise OnefoldValueError(
            f"mesh_shape and mesh_dim_names should have same length, but the mesh has {ndim} axes "
            f"and the names are {found}"
        )
    if len(set(found)) != len(found):
        raise OnefoldValueError(f"each mesh_dim_name must be unique, but the names are {found}")
    return found


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    backend_override: object = None,
) -> DeviceMesh:
    """The mesh of the first ranks, in row-major order.

    Raises OnefoldValueError for names that do not fit, PlacementError for more ranks than there are
    processes. Where one process has all ranks, there are as many as the mesh needs.

    >>> init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    DeviceMesh('cpu', [[0, 1], [2, 3]], mesh_dim_names=('dp', 'tp'))
    """
    ranks = np.arange(prod(mesh_shape)).reshape(tuple(mesh_shape))
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names)
