"""biject_to and transform_to: for each constraint a transform of all numbers to its set.

That of `biject_to` is bijective and has a Jacobian, as for Hamiltonian Monte Carlo; that of
`transform_to` is cheap and may have more coordinates, as for optimization.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from ..errors import OnefoldNotImplementedError, OnefoldTypeError, kind_of
from . import constraints, transforms
from .broadcast_parameters import Bound
from .constraints import Constraint
from .transforms import Transform

Factory = Callable[[Any], Transform]
F = TypeVar("F", bound=Factory)
Key = Constraint | type[Constraint]


class ConstraintRegistry:
    """Transforms by the types of constraints.

    >>> import onefold as flow
    >>> transform_to(constraints.positive)(flow.tensor(0.0))
    tensor(1.)
    """

    def __init__(self) -> None:
        self._registry: dict[type[Constraint], Factory] = {}

    @overload
    def register(self, constraint: Key, factory: None = None) -> Callable[[F], F]: ...

    @overload
    def register(self, constraint: Key, factory: F) -> F: ...

    def register(self, constraint: Key, factory: F | None = None) -> Callable[[F], F] | F:
        """Enter the function that makes the transform for constraints of a type (a decorator).

        Raises OnefoldTypeError for what is no constraint.
        """
        if factory is None:

            def entered(made: F) -> F:
                return self.register(constraint, made)

            return entered
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not _is_constraint(kind):
            raise OnefoldTypeError(
                "register: Expected constraint to be either a Constraint subclass or instance, "
                f"but got {kind_of(constraint)}"
            )
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        """The transform; raises OnefoldNotImplementedError where none is registered."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise OnefoldNotImplementedError(
                f"Cannot transform {type(constraint).__name__} constraints; register a function "
                "that makes the transform"
            )
        return factory(constraint)


def _is_constraint(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _both(*kinds: Key) -> Callable[[Factory], Factory]:
    def register(factory: Factory) -> Factory:
        for kind in kinds:
            biject_to.register(kind, factory)
            transform_to.register(kind, factory)
        return factory

    return register


def _shifted(transform: Transform, loc: Bound, scale: Bound) -> Transform:
    return transforms.ComposeTransform([transform, transforms.AffineTransform(loc, scale)])


@_both(constraints.real)
def _real(constraint: Any) -> Transform:
    return transforms.identity_transform


@_both(constraints.greater_than, constraints.greater_than_eq)
def _above(constraint: Any) -> Transform:
    bound = constraint.lower_bound
    if not hasattr(bound, "shape") and bound == 0:
        return transforms.ExpTransform()
    return _shifted(transforms.ExpTransform(), bound, 1)


@_both(constraints.less_than)
def _below(constraint: Any) -> Transform:
    return _shifted(transforms.ExpTransform(), constraint.upper_bound, -1)


@_both(constraints.interval, constraints.half_open_interval)
def _between(constraint: Any) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if not hasattr(low, "shape") and not hasattr(high, "shape") and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return _shifted(transforms.SigmoidTransform(), low, high - low)


@_both(constraints.corr_cholesky)
def _corr_cholesky(constraint: Any) -> Transform:
    return transforms.CorrCholeskyTransform()


@biject_to.register(constraints.simplex)
def _bijective_simplex(constraint: Any) -> Transform:
    return transforms.StickBreakingTransform()


@transform_to.register(constraints.simplex)
def _simplex(constraint: Any) -> Transform:
    return transforms.SoftmaxTransform()


@transform_to.register(constraints.lower_cholesky)
def _lower_cholesky(constraint: Any) -> Transform:
    return transforms.LowerCholeskyTransform()


@transform_to.register(constraints.positive_definite)
@transform_to.register(constraints.positive_semidefinite)
def _positive_definite(constraint: Any) -> Transform:
    return transforms.PositiveDefiniteTransform()


def _register_composed(registry: ConstraintRegistry) -> None:
    """Constraints that are made of others, whose transforms are those of the same registry."""

    @registry.register(constraints.independent)
    def _independent(constraint: Any) -> Transform:
        base = registry(constraint.base_constraint)
        return transforms.IndependentTransform(base, constraint.reinterpreted_batch_ndims)

    @registry.register(constraints.cat)
    def _cat(constraint: Any) -> Transform:
        parts = list(map(registry, constraint.cseq))
        return transforms.CatTransform(parts, constraint.dim, constraint.lengths)

    @registry.register(constraints.stack)
    def _stack(constraint: Any) -> Transform:
        return transforms.StackTransform(list(map(registry, constraint.cseq)), constraint.dim)


_register_composed(biject_to)
_register_composed(transform_to)
