"""Pruning: parameters of which some elements are 0 and stay so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import torch

from ...engine.ops.creation import tensor
from ...engine.tensor import Tensor
from ...engine.values import whole
from ...errors import OnefoldTypeError, OnefoldValueError
from ..module import Module
from .pruning_base import (
    BasePruningMethod,
    PruningContainer,
)
from .pruning_methods import (
    CustomFromMask,
    Identity,
    L1Unstructured,
    LnStructured,
    RandomStructured,
    RandomUnstructured,
)

__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]

M = TypeVar("M", bound=Module)


def identity(module: M, name: str) -> M:
    """Give a parameter a mask that prunes nothing."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: M, name: str, amount: int | float) -> M:
    """Prune random elements: `amount` of them, or that fraction."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: M, name: str, amount: int | float, importance_scores: Tensor | None = None
) -> M:
    """Prune the elements of the least absolute value, or of the least scores.

    >>> import onefold as flow
    >>> layer = flow.nn.Linear(4, 2)
    >>> layer = flow.nn.utils.prune.l1_unstructured(layer, "weight", amount=3)
    >>> int((layer.weight == 0).sum()), sorted(layer.state_dict())
    (3, ['bias', 'weight_mask', 'weight_orig'])
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: M, name: str, amount: int | float, dim: int) -> M:
    """Prune random channels of `dim`: `amount` of them, or that fraction."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: M,
    name: str,
    amount: int | float,
    n: float | str,
    dim: int,
    importance_scores: Tensor | None = None,
) -> M:
    """Prune the channels of `dim` that have the least norm of order n."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: Mapping[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune several parameters together, as one vector, by a method for elements.

    `importance_scores` stand for some of the parameters where elements are chosen. Raises
    OnefoldTypeError for arguments of other types, and for a method that is not "unstructured".
    """
    if not isinstance(parameters, Iterable):
        raise OnefoldTypeError("global_unstructured(): parameters is not an Iterable")
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, Mapping):
        raise OnefoldTypeError("global_unstructured(): importance_scores must be of type dict")
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise OnefoldTypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    pairs = list(parameters)
    values = [whole(getattr(module, name)).detach() for module, name in pairs]
    given = [
        whole(scores[pair]) if pair in scores else value
        for pair, value in zip(pairs, values, strict=True)
    ]
    before = [
        whole(getattr(module, f"{name}_mask")) if f"{name}_mask" in module._buffers
        else torch.ones_like(value)
        for (module, name), value in zip(pairs, values, strict=True)
    ]  # fmt: skip
    vectors = [tensor(torch.cat([each.reshape(-1) for each in part])) for part in (given, before)]
    mask = whole(PruningContainer(method).compute_mask(*vectors))
    parts = mask.split([value.numel() for value in values])
    for (module, name), value, part in zip(pairs, values, parts, strict=True):
        custom_from_mask(module, name, tensor(part.reshape(value.shape)))


def custom_from_mask(module: M, name: str, mask: Tensor) -> M:
    """Prune the elements for which a mask has 0."""
    CustomFromMask.apply(module, name, mask)
    return module


def _method_of(module: Module, name: str) -> BasePruningMethod | None:
    found = module._computed_tensor(name)
    return found if isinstance(found, BasePruningMethod) else None


def remove(module: M, name: str) -> M:
    """Make a pruned parameter an ordinary one again, with its pruned value.

    Raises OnefoldValueError for a parameter that is not pruned.
    """
    method = _method_of(module, name)
    if method is None:
        raise OnefoldValueError(
            f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
        )
    method.remove(module)
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of one in it, is pruned."""
    return any(
        isinstance(computed, BasePruningMethod)
        for each in module.modules()
        for computed in each.__dict__.get("_computed_tensors", {}).values()
    )
