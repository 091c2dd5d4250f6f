"""How tensor-parallel modules meet fully_shard: parameters on a mesh, and on a rank's own group."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from ..engine.convert import to_global, to_local
from ..engine.own_group import in_own_group
from ..engine.sbp import broadcast
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from ..nn.gathered_parameters import Gather
from ..nn.module import Module
from ..nn.parameter_readers import add_gather
from .device_mesh import DeviceMesh
from .style_layouts import STYLE_MESH

View: TypeAlias = Callable[[Tensor], Tensor]


def lift_styled(module: Module, mesh: DeviceMesh) -> bool:
    """Lay the parameters of `parallelize_module` over all of the mesh; whether there are any.

    Along the axes that their style did not name they get the value of the first rank. Raises
    OnefoldValueError where the style's mesh is no part of the same mesh, or has an axis in common.
    """
    found = False
    for owner in module.modules():
        style: DeviceMesh | None = owner.__dict__.get(STYLE_MESH)
        if style is None:
            continue
        found = True
        if style.placement is not mesh.placement or set(style.axes) & set(mesh.axes):
            raise OnefoldValueError(
                f"fully_shard: {type(owner).__name__} is parallel over {style}, and to be split "
                f"over {mesh}; make one mesh with both axes, init_device_mesh(device, (2, 2), "
                "mesh_dim_names=('dp', 'tp')), and take mesh['dp'] and mesh['tp'] of it"
            )
        owner._apply(partial(_lifted, style), recurse=False)
    return found


def _lifted(style: DeviceMesh, x: Tensor) -> Tensor:
    if x.is_local or x.placement is not style.own_placement or x.placement is style.placement:
        return x
    sbp = [broadcast] * style.placement.ndim
    for axis, each in zip(style.axes, x.sbp, strict=True):
        sbp[axis] = each
    return to_global(to_local(x), style.placement, tuple(sbp))


def own_views(module: Module, mesh: DeviceMesh) -> Callable[[str], View] | None:
    """What calls on local tensors use of each parameter; None where the mesh has no other axis.

    Buffers get theirs here.
    """
    if mesh.ndim == mesh.placement.ndim:
        return None

    def view(owner: Module) -> View:
        style: DeviceMesh | None = owner.__dict__.get(STYLE_MESH)
        axes = () if style is None else style.axes
        return partial(in_own_group, axes=axes, averaged=mesh.axes)

    for owner in module.modules():
        for name, buffer in owner._buffers.items():
            if buffer is not None and buffer.is_global:
                add_gather(owner, Gather(owner._buffers, name, buffer.sbp, True, own=view(owner)))
    return lambda name: view(module.get_submodule(name.rpartition(".")[0]))
