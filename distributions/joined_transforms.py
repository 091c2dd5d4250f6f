"""Transforms of the parts of a tensor, each by a transform of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldTypeError, OnefoldValueError, ShapeError, kind_of
from . import constraints
from .constraints import Constraint
from .transform import Transform, sum_rightmost


class _Joined(Transform):
    """Several transforms of parts along `dim`."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        for each in tseq:
            if not isinstance(each, Transform):
                raise OnefoldTypeError(
                    f"{type(self).__name__}: each of tseq must be a Transform, got {kind_of(each)}"
                )
        super().__init__(cache_size)
        self.transforms = [each.with_cache(cache_size) if cache_size else each for each in tseq]
        self.dim = dim

    def with_cache(self, cache_size: int = 1) -> Self:
        new = super().with_cache(cache_size)
        if new is not self:
            new.transforms = [each.with_cache(cache_size) for each in self.transforms]
        return new

    @property
    def bijective(self) -> bool:
        return all(each.bijective for each in self.transforms)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Joined)
            and type(other) is type(self)
            and self.transforms == other.transforms
            and self.dim == other.dim
        )

    __hash__ = Transform.__hash__

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        raise NotImplementedError

    def _join(self, parts: Sequence[Tensor], dim: int) -> Tensor:
        raise NotImplementedError

    def _zip(self, *given: Tensor) -> Iterable[tuple[Any, ...]]:
        return zip(self.transforms, *map(self._parts, given), strict=True)

    def _call(self, x: Tensor) -> Tensor:
        return self._join([each(part) for each, part in self._zip(x)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._join([each._inv_call(part) for each, part in self._zip(y)], self.dim)


class CatTransform(_Joined):
    """Transforms of parts of these `lengths` along `dim` (of 1 each), as of `flow.cat`."""

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise OnefoldValueError(
                f"CatTransform: needs a length for each of {len(self.transforms)} transforms, but "
                f"got {len(self.lengths)}"
            )

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and self.lengths == getattr(other, "lengths", None)

    __hash__ = Transform.__hash__

    @property
    def length(self) -> int:
        """The size of the dim that is cut into parts."""
        return sum(self.lengths)

    @property
    def event_dim(self) -> int:
        return max(each.event_dim for each in self.transforms)

    @property
    def domain(self) -> Constraint:
        return self._constraint(lambda each: each.domain)

    @property
    def codomain(self) -> Constraint:
        return self._constraint(lambda each: each.codomain)

    def _constraint(self, of: Callable[[Transform], Constraint]) -> Constraint:
        return constraints.cat(list(map(of, self.transforms)), self.dim, self.lengths)

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        return x.split(self.lengths, self.dim)

    def _join(self, parts: Sequence[Tensor], dim: int) -> Tensor:
        return tensor_ops.cat(list(parts), dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        terms = [
            sum_rightmost(each.log_abs_det_jacobian(before, after), self.event_dim - each.event_dim)
            for each, before, after in self._zip(x, y)
        ]
        dim = (self.dim - x.ndim if self.dim >= 0 else self.dim) + self.event_dim
        return self._join(terms, dim) if dim < 0 else sum(terms[1:], terms[0])


class StackTransform(_Joined):
    """Transforms of the parts at each index of `dim`, as of `flow.stack`."""

    @property
    def domain(self) -> Constraint:
        return constraints.stack([each.domain for each in self.transforms], self.dim)

    @property
    def codomain(self) -> Constraint:
        return constraints.stack([each.codomain for each in self.transforms], self.dim)

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        parts = x.unbind(self.dim)
        if len(parts) != len(self.transforms):
            raise ShapeError(
                f"StackTransform: {len(self.transforms)} transforms need as many parts along dim "
                f"{self.dim}, but got {len(parts)}"
            )
        return parts

    def _join(self, parts: Sequence[Tensor], dim: int) -> Tensor:
        return tensor_ops.stack(list(parts), dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        found = [each.log_abs_det_jacobian(a, b) for each, a, b in self._zip(x, y)]
        return self._join(found, self.dim)
