"""The steps of parallel styles: parameters on a mesh, and tensors in the layouts of its axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ..distributed.world import world
from ..engine.convert import to_global
from ..engine.grad_mode import no_grad
from ..engine.own_group import from_equal_parts, own_part
from ..engine.sbp import NdSbp, broadcast
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError, PlacementError
from ..nn.module import Module
from ..nn.parameter import Parameter
from .device_mesh import DeviceMesh
from .mesh_tensors import MeshPlacement, sbp_of

Layout: TypeAlias = MeshPlacement | None
Layouts: TypeAlias = MeshPlacement | Sequence[Layout] | None

# The name under which a module keeps the mesh over which its style lays its parameters.
STYLE_MESH = "_parallel_style_mesh"


def checked(style: object, layout: object) -> MeshPlacement:
    """A layout that a user gave. Raises OnefoldTypeError for what is none."""
    if not isinstance(layout, MeshPlacement):
        raise OnefoldTypeError(
            f"{type(style).__name__}: a layout is Shard(dim), Replicate() or Partial(), but got "
            f"{layout!r}"
        )
    return layout


def several(style: object, layouts: Layouts) -> tuple[Layout, ...] | None:
    """One layout or several as a tuple."""
    if layouts is None:
        return None
    given = (layouts,) if isinstance(layouts, MeshPlacement) else tuple(layouts)
    return tuple([None if each is None else checked(style, each) for each in given])


def check_pairs(
    style: object, given: Sequence[Layout] | None, desired: Sequence[Layout] | None
) -> None:
    """Raise OnefoldValueError unless each layout has one that is desired."""
    if (given is None) != (desired is None) or len(given or ()) != len(desired or ()):
        raise OnefoldValueError(
            f"{type(style).__name__}: layouts and desired layouts should have same length, but "
            f"are {given} and {desired}; write None for what is to stay as it is"
        )


def distribute(
    owner: Module, name: str, mesh: DeviceMesh, layout: MeshPlacement, source: int | None
) -> None:
    """Lay a parameter over the axes of a mesh, from the value that its first rank has.

    With `source` None each rank's own value counts.
    """
    param = owner._parameters[name]
    assert param is not None
    if param.is_global:
        raise OnefoldValueError(
            f"parallelize_module: {name} of {type(owner).__name__} is global already: "
            f"{param.meta!r}; give each module one style, and call fully_shard afterwards"
        )
    place = mesh.own_placement
    whole = (broadcast,) * place.ndim
    with no_grad():
        if source is None:
            found = from_equal_parts(param, place, whole)
        else:
            found = to_global(param, place, whole, check_meta=False)
        found = to_global(found, sbp=_along(found, mesh, layout))
    owner.register_parameter(name, Parameter(found, param.requires_grad))
    owner.__dict__[STYLE_MESH] = mesh


def laid(
    x: object, mesh: DeviceMesh, given: Layout, wanted: MeshPlacement, style: object
) -> Tensor:
    """A tensor along the axes of a mesh as wanted; a local one is this rank's part as `given`."""
    if not isinstance(x, Tensor):
        raise OnefoldTypeError(
            f"{type(style).__name__} expects a tensor, but got {type(x).__name__}; give None as "
            "the layout of what is no tensor"
        )
    if x.is_local:
        place = mesh.own_placement
        before = [broadcast] * place.ndim
        if given is not None:
            for axis in _axes(mesh, place.ndim):
                before[axis] = sbp_of(given, x.ndim)
        x = from_equal_parts(x, place, tuple(before))
    elif x.placement is not mesh.placement and x.placement is not mesh.own_placement:
        raise PlacementError(
            f"{type(style).__name__}: the tensor is on {x.placement!r}, but the module on "
            f"{mesh.own_placement!r}; call x.to_global(placement) before"
        )
    nd_sbp = _along(x, mesh, wanted)
    if nd_sbp == x.sbp:
        return x
    axes = _axes(mesh, len(x.sbp))
    back = [broadcast if i in axes and sbp.is_partial else sbp for i, sbp in enumerate(x.sbp)]
    return to_global(x, sbp=nd_sbp, grad_sbp=tuple(back))


def given_back(x: Tensor, mesh: DeviceMesh, use_local_output: bool) -> Tensor:
    """This rank's part of a tensor of its group, if wanted and if it can be one.

    What lies over a larger mesh, and in a world of one process what is split, stays global.
    """
    if not use_local_output or x.placement is not mesh.own_placement:
        return x
    if not world().launched and not all(sbp.is_broadcast for sbp in x.sbp):
        return x
    return own_part(x)


def one_laid(x: Any, given: Layout, wanted: Layout, mesh: DeviceMesh, style: Any) -> Any:
    """An argument or result in the layout that is desired, or as it is where that is None."""
    if given is None:
        return x
    found = laid(x, mesh, given, given if wanted is None else wanted, style)
    return given_back(found, mesh, style.use_local_output)


def all_laid(
    values: Sequence[Any],
    given: Sequence[Layout],
    wanted: Sequence[Layout],
    mesh: DeviceMesh,
    style: Any,
    what: str,
) -> tuple[Any, ...]:
    """Arguments or results, one by one. Raises OnefoldValueError for another number of them."""
    if len(values) != len(given):
        raise OnefoldValueError(
            f"{type(style).__name__}: {what} and layouts should have same length, but there are "
            f"{len(values)} for {len(given)} layouts; write None for what is to stay as it is"
        )
    rows = zip(values, given, wanted, strict=True)
    return tuple([one_laid(x, before, after, mesh, style) for x, before, after in rows])


def _axes(mesh: DeviceMesh, ndim: int) -> tuple[int, ...]:
    """The axes of a mesh among those of a tensor on it, or on this rank's group of it."""
    return mesh.axes if ndim == mesh.placement.ndim else tuple(range(ndim))


def _along(x: Tensor, mesh: DeviceMesh, layout: MeshPlacement) -> NdSbp:
    found = list(x.sbp)
    for axis in _axes(mesh, len(found)):
        found[axis] = sbp_of(layout, x.ndim)
    return tuple(found)
