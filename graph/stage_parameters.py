"""Parameters that modules of several stages share: stages that do not have them read copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ..engine.convert import global_to_global
from ..engine.placement import Placement
from ..engine.sbp import broadcast
from ..engine.tensor import Tensor
from .graph_config import GraphModule

R = TypeVar("R")


def shared_by_stages(views: Iterable[GraphModule]) -> frozenset[int]:
    """The identities of the parameters that modules of several stages have."""
    stages: dict[int, set[int]] = {}
    for view in views:
        if view.stage_id is not None:
            for param in view.module.parameters():
                stages.setdefault(id(param), set()).add(view.stage_id)
    return frozenset([key for key, found in stages.items() if len(found) > 1])


def with_shared_parameters(
    module: object, placement: Placement, shared: frozenset[int], forward: Callable[..., R]
) -> Callable[..., R]:
    """A module's forward, in which its `shared` parameters that lie elsewhere are on these ranks.

    The gradient of a copy goes back to the parameter. A program makes the copy once for all
    micro-batches, since it does not depend on them.
    """
    table: dict[str, Any] = vars(module).get("_parameters", {})
    far = {
        name: param
        for name, param in table.items()
        if id(param) in shared and param.is_global and param.placement is not placement
    }
    if not far:
        return forward

    def called(*args: object, **kwargs: object) -> R:
        try:
            for name, param in far.items():
                table[name] = to_stage(placement, param)
            return forward(*args, **kwargs)
        finally:
            table.update(far)

    return called


def to_stage(placement: Placement, x: Tensor) -> Tensor:
    """The input of a stage, on its ranks; in the same sbp if the meshes have the same shape."""
    if not x.is_global or x.placement is placement:
        return x
    nd_sbp = x.sbp if x.placement.ndim == placement.ndim else (broadcast,) * placement.ndim
    return global_to_global(x, placement, nd_sbp)
