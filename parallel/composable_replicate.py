"""replicate (torch.distributed._composable): data parallelism of a module in place."""

from __future__ import annotations

from collections.abc import Iterable

from ..comm.process_groups import ProcessGroup
from ..nn.module import Module
from ..nn.parameter import Parameter
from .device_mesh import DeviceMesh
from .fully_sharded import (
    FULL_PRECISION,
    M,
    MixedPrecisionPolicy,
    OffloadPolicy,
    device_of,
    modules_of,
    shard_module,
)

__all__ = ["replicate"]


def replicate(
    module: M,
    ignored_modules: Iterable[Module] | None = None,
    *,
    mesh: DeviceMesh | None = None,
    device_mesh: DeviceMesh | None = None,
    process_group: ProcessGroup | None = None,
    mp_policy: MixedPrecisionPolicy = FULL_PRECISION,
    offload_policy: OffloadPolicy | None = None,
    ignored_params: set[Parameter] | None = None,
    **options: object,
) -> M:
    """Let the calls of a module take local batches, in place; every rank has all parameters.

    As `fully_shard` otherwise, which says what is raised; over `mesh`, also called `device_mesh`,
    or the ranks of `process_group`. Options of DistributedDataParallel about time have no effect.

    >>> import onefold as flow
    >>> mesh = flow.distributed.init_device_mesh("cpu", (2,))
    >>> model = replicate(flow.nn.Linear(64, 64), mesh=mesh)
    >>> model.weight.placements
    (Replicate(),)
    """
    mesh = device_mesh if mesh is None else mesh
    ignored = {p for each in ignored_modules or () for p in each.parameters()}
    ignored |= ignored_params or set()
    for each in modules_of("replicate", module, offload_policy):
        if mesh is None and process_group is not None:
            mesh = DeviceMesh(device_of(each), list(process_group.ranks))
        shard_module(each, mesh, False, None, mp_policy, ignored, split=False)
    return module


# In torch the function is in a module of its name, and both have one path.
vars(replicate)["replicate"] = replicate
