"""to_global and to_local of trees of tensors, and the mode in which new tensors are global."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._pytree import tree_leaves, tree_map

from ..distributed.collectives import gather_objects
from ..distributed.world import world
from ..engine import convert
from ..engine.global_mode import current_global_mode, global_mode
from ..engine.placement import Placement
from ..engine.sbp import Sbp, SbpLike
from ..engine.tensor import Tensor, tensor_ops
from ..errors import warn
from ..nn.module import Module

__all__ = ["current_global_mode", "global_mode", "to_global", "to_local"]

SbpChoice = Callable[[Any, Tensor], SbpLike]


def to_global(
    input: Any,
    placement: Placement | None = None,
    sbp: SbpLike | SbpChoice | None = None,
    warn_on_non_tensor_leaf: bool = True,
    **kwargs: Any,
) -> Any:
    """`input` with every tensor in it converted by `to_global`, which gets `kwargs` too.

    `input` is a tensor, lists, tuples and dicts of them (a state dict, for instance), or a module,
    which is converted in place. `sbp` may be a function of (input, tensor). Other values stay, with
    a warning unless `warn_on_non_tensor_leaf` is False. Of local tensors, those of the ranks of
    `placement` count: other ranks get what its first rank has, and may pass None.

    >>> import onefold as flow
    >>> p = flow.placement("cpu", [0, 1])
    >>> to_global({"x": [flow.ones(2)]}, p, flow.sbp.split(0))["x"][0].shape
    torch.Size([4])
    """
    if isinstance(input, Module):
        return input.to_global(placement, sbp)
    if placement is not None and kwargs.get("check_meta", True):
        input = _as_on_members(input, placement)

    def convert_one(x: Tensor) -> Tensor:
        # An Sbp is callable as well.
        given = sbp(input, x) if callable(sbp) and not isinstance(sbp, Sbp) else sbp
        return convert.to_global(x, placement, given, **kwargs)

    return _mapped(input, convert_one, "to_global" if warn_on_non_tensor_leaf else "")


def _as_on_members(tree: Any, placement: Placement) -> Any:
    """The tree; on processes outside the placement that of its first rank, with empty tensors."""
    here = world()
    leaves = tree_leaves(tree)
    is_global = any(isinstance(x, Tensor) and x.is_global for x in leaves)
    if not here.launched or is_global or placement.num_ranks == here.size:
        return tree
    is_tensor = tree_map(lambda x: isinstance(x, Tensor), tree)
    rest = tree_map(lambda x: None if isinstance(x, Tensor) else x, tree)
    first = placement.flat_ranks[0]
    mine = (is_tensor, rest) if here.rank == first else (None, None)
    is_tensor, rest = gather_objects(mine, tuple(range(here.size)))[first]
    if here.rank in placement.position:
        return tree
    return tree_map(lambda at, value: tensor_ops.empty(0) if at else value, is_tensor, rest)


def to_local(input: Any, *, copy: bool = False) -> Any:
    """`input` with every global tensor in it as this process's part.

    A module is converted in place. Other values stay, with a warning.
    """
    if isinstance(input, Module):
        return input.to_local()
    return _mapped(input, lambda x: convert.to_local(x, copy=copy), "to_local")


def _mapped(tree: Any, function: Callable[[Tensor], Tensor], warns: str) -> Any:
    def leaf(value: Any) -> Any:
        if isinstance(value, Tensor):
            return function(value)
        if warns and value is not None:
            warn(
                f"{warns}: found a {type(value).__name__}, which is no Tensor and stays as it is",
                UserWarning,
            )
        return value

    return tree_map(leaf, tree)
