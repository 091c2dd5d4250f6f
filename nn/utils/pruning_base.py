"""The bases of pruning: a method that makes a mask, and several of them one after the other.

A pruned parameter is `{name}_orig`, its mask the buffer `{name}_mask`, and the attribute `{name}`
is their product, computed wherever it is read. Masks are computed from whole values, the same on
every rank, and then laid out as the parameter is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from ...engine.inplace import fitted, take
from ...engine.ops.creation import tensor
from ...engine.ops.like import ones_like
from ...engine.tensor import Tensor
from ...engine.values import whole
from ...errors import (
    OnefoldAttributeError,
    OnefoldIndexError,
    OnefoldTypeError,
    OnefoldValueError,
    ShapeError,
)
from ..module import Module


def local_value(x: Tensor) -> Tensor:
    """The logical value as a local tensor."""
    return tensor(whole(x).detach().clone())


class BasePruningMethod(ABC):
    """A way to choose which elements of a parameter become 0; a subclass has `compute_mask`."""

    PRUNING_TYPE: ClassVar[str]  # "unstructured", "structured" (with a `dim`) or "global"
    _tensor_name: str | None = None

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of importance scores `t`: 0 where an element is pruned, else the default's."""

    def apply_mask(self, module: Module) -> Tensor:
        """The pruned tensor of a module."""
        assert self._tensor_name is not None, f"Module {module} has to be pruned"
        mask: Tensor = getattr(module, f"{self._tensor_name}_mask")
        original: Tensor = getattr(module, f"{self._tensor_name}_orig")
        return mask.to(original.dtype) * original

    value = apply_mask

    def assign(self, module: Module, value: object) -> None:
        raise OnefoldTypeError(
            f"{self._tensor_name!r} is pruned, so that it is computed: assign "
            f"{self._tensor_name}_orig, or call prune.remove first"
        )

    @classmethod
    def apply(
        cls,
        module: Module,
        name: str,
        *args: Any,
        importance_scores: Tensor | None = None,
        **kwargs: Any,
    ) -> BasePruningMethod:
        """Prune a parameter, by this method after those before; returns what holds all of them.

        `importance_scores` stand for the parameter where elements are chosen. Raises ShapeError
        when their shape is another one; what a method raises changes nothing.
        """
        method = cls(*args, **kwargs)
        method._tensor_name = name
        before = module._computed_tensor(name)
        pruned = isinstance(before, BasePruningMethod)
        original = getattr(module, f"{name}_orig") if pruned else module.get_parameter(name)
        scores = getattr(module, name) if importance_scores is None else importance_scores
        if scores.shape != original.shape:
            raise ShapeError(
                f"importance_scores should have the same shape as parameter {name} of {module}, "
                f"got {tuple(scores.shape)} vs {tuple(original.shape)}"
            )
        if isinstance(before, BasePruningMethod):
            holder: BasePruningMethod = PruningContainer(
                *(before if isinstance(before, PruningContainer) else [before]), method
            )
            default = local_value(getattr(module, f"{name}_mask"))
        else:
            holder = method
            default = ones_like(local_value(original))
        mask = fitted(whole(holder.compute_mask(local_value(scores), default)), original)
        module._set_computed(name, holder)
        module._parameters[f"{name}_orig"] = original
        module._buffers[f"{name}_mask"] = mask
        return holder

    def prune(
        self,
        t: Tensor,
        default_mask: Tensor | None = None,
        importance_scores: Tensor | None = None,
    ) -> Tensor:
        """A pruned tensor, of no module. Raises ShapeError for scores of another shape."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise ShapeError(
                "importance_scores should have the same shape as tensor t, got "
                f"{tuple(scores.shape)} vs {tuple(t.shape)}"
            )
        default = ones_like(t) if default_mask is None else default_mask
        mask = self.compute_mask(local_value(scores), local_value(default))
        return t * fitted(whole(mask), t.detach())

    def remove(self, module: Module) -> None:
        """Make the parameter an ordinary one again, with the pruned value."""
        name = self._tensor_name
        assert name is not None, f"Module {module} has to be pruned before pruning can be removed"
        original = module._parameters[f"{name}_orig"]
        take(original, fitted(self.apply_mask(module).detach(), original))
        del module._parameters[f"{name}_orig"], module._buffers[f"{name}_mask"]
        module._unset_computed(name, original)


class PruningContainer(BasePruningMethod):
    """Several methods for one parameter, of which each prunes what those before it left."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if args:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Add a method for the same parameter. Raises OnefoldTypeError and OnefoldValueError."""
        if not isinstance(method, BasePruningMethod):
            raise OnefoldTypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method._tensor_name != self._tensor_name:
            raise OnefoldValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: int) -> BasePruningMethod:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The default mask, with what the latest method prunes among the remaining elements."""
        method = self._pruning_methods[-1]
        mask = whole(default_mask).to(t.dtype, copy=True)
        part = _left(method, mask)
        found = method.compute_mask(tensor(whole(t)[part]), tensor(mask[part]))
        mask[part] = whole(found).to(mask.dtype)
        return tensor(mask)


def _left(method: BasePruningMethod, mask: Any) -> Any:
    """The index of the elements that a method chooses from: whole channels if it is structured."""
    if method.PRUNING_TYPE == "unstructured":
        return mask == 1
    if method.PRUNING_TYPE == "global":
        return slice(None)
    if method.PRUNING_TYPE != "structured":
        raise OnefoldValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
    if not hasattr(method, "dim"):
        raise OnefoldAttributeError(
            'Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.'
        )
    if not -mask.ndim <= method.dim < mask.ndim:
        raise OnefoldIndexError(f"Index is out of bounds for tensor with dimensions {mask.ndim}")
    dim = method.dim % mask.ndim
    others = [each for each in range(mask.ndim) if each != dim]
    index: list[Any] = [slice(None)] * mask.ndim
    index[dim] = mask.sum(others) != 0
    return tuple(index)
