"""Layout rules: the placement and sbp of each parameter and buffer of a module, by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import TypeAlias

from ..engine.meta import check_nd_sbp
from ..engine.placement import Placement
from ..engine.sbp import NdSbp, Sbp, SbpLike, as_nd_sbp, broadcast, short
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError, warn

SbpRule: TypeAlias = Callable[[str, Tensor], SbpLike | None]
LayoutRule: TypeAlias = SbpLike | SbpRule | Mapping[str, SbpLike | None]
PlacementRule: TypeAlias = Callable[[str, Tensor], Placement | None]


class LocalPartsWarning(UserWarning):
    """Local parameters are read as parts of global ones, which are as many times as large."""


def placements(
    tensors: Mapping[str, Tensor], rule: Placement | PlacementRule | None
) -> dict[str, Placement | None]:
    """The placement that `rule` gives each tensor; None: unchanged."""
    if callable(rule):
        return {name: rule(name, tensor) for name, tensor in tensors.items()}
    return dict.fromkeys(tensors, rule)


def layouts(
    tensors: Mapping[str, Tensor],
    placements: Mapping[str, Placement | None],
    rule: LayoutRule | None,
) -> dict[str, SbpLike | None]:
    """The sbp that `rule` gives each tensor; None: unchanged, or broadcast if it is local.

    Warns of local tensors that are not broadcast. Raises OnefoldValueError for a pattern that no
    name matches, SbpError for an sbp that does not fit a tensor.
    """
    if rule is None or isinstance(rule, Sbp):
        chosen: dict[str, SbpLike | None] = dict.fromkeys(tensors, rule)
    elif isinstance(rule, Mapping):
        chosen = _matched(tensors, rule)
    elif callable(rule):
        chosen = {name: rule(name, tensor) for name, tensor in tensors.items()}
    else:
        chosen = dict.fromkeys(tensors, tuple(rule))
    if rule is None:
        return chosen
    for name, tensor in tensors.items():
        placement = placements[name]
        if tensor.is_local and chosen[name] is None and isinstance(placement, Placement):
            chosen[name] = (broadcast,) * placement.ndim
    _warn_of_parts(tensors, placements, chosen)
    return chosen


def _matched(
    tensors: Mapping[str, Tensor], table: Mapping[str, SbpLike | None]
) -> dict[str, SbpLike | None]:
    """The sbp of the first pattern that matches each name; None where none does."""
    unused = dict.fromkeys(table)
    chosen: dict[str, SbpLike | None] = {}
    for name in tensors:
        patterns = [pattern for pattern in table if fnmatchcase(name, pattern)]
        for pattern in patterns:
            unused.pop(pattern, None)
        chosen[name] = table[patterns[0]] if patterns else None
    if unused:
        raise OnefoldValueError(
            f"to_global: no parameter or buffer matches {', '.join(map(repr, unused))}; the "
            f"module has {', '.join(tensors) or 'none'}"
        )
    return chosen


def _warn_of_parts(
    tensors: Mapping[str, Tensor],
    placements: Mapping[str, Placement | None],
    chosen: Mapping[str, SbpLike | None],
) -> None:
    found = []
    for name, tensor in tensors.items():
        sbp, placement = chosen[name], placements[name]
        if tensor.is_local and sbp is not None and isinstance(placement, Placement):
            nd_sbp = as_nd_sbp(sbp, placement.ndim)
            check_nd_sbp(tensor.shape, nd_sbp)
            if any(
                size > 1 and not each.is_broadcast
                for size, each in zip(placement.shape, nd_sbp, strict=True)
            ):
                found.append((name, tensor, placement, nd_sbp))
    if not found:
        return
    name, tensor, placement, nd_sbp = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    warn(
        f"Module.to_global: {name}{more} is local, so that the copy of each rank is read as its "
        f"part of a larger parameter: {_joined(tensor, placement, nd_sbp)}. To lay out the module "
        "as it is, write module.to_global(placement, sbp=flow.sbp.broadcast), and then "
        "module.to_global(sbp=...).",
        LocalPartsWarning,
    )


def _joined(tensor: Tensor, placement: Placement, nd_sbp: NdSbp) -> str:
    """A description of the tensor that the equal parts of all ranks form."""
    if any(sbp.is_partial for sbp in nd_sbp):
        return f"the sum of {placement.num_ranks} copies, as {short(nd_sbp)}"
    shape = list(tensor.shape)
    for size, sbp in zip(placement.shape, nd_sbp, strict=True):
        if sbp.is_split:
            shape[sbp.dim] *= size
    return f"{tuple(tensor.shape)} becomes {tuple(shape)}, as {short(nd_sbp)}"
