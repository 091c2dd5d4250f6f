"""Distribution: what all distributions share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, cast

import torch

from ..engine import interpreter
from ..engine.grad_mode import no_grad
from ..engine.tensor import Tensor
from ..errors import (
    OnefoldNotImplementedError,
    OnefoldTypeError,
    OnefoldValueError,
    kind_of,
    warn,
)
from .broadcast_parameters import in_shape
from .scalar_constraints import Constraint, is_dependent


class Distribution:
    """Independent random variables: `batch_shape` of them, each a tensor of `event_shape`.

    Parameters and samples may be global: a sample has the layout of the parameters (broadcast where
    they are partial), and the same numbers for every layout. With `validate_args` (the default)
    parameters and values are checked, which reads them; in graphs, where values are not known, it
    is left out. Raises OnefoldValueError for parameters and values that are not allowed, and
    OnefoldTypeError for a value that is no tensor.

    Subclasses set their parameters, which `arg_constraints` names, before they call `__init__`;
    `support` is the set of values.
    """

    has_rsample: ClassVar[bool] = False
    has_enumerate_support: ClassVar[bool] = False
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {}
    support: Any = None
    _validates: ClassVar[bool] = True

    def __init__(
        self,
        batch_shape: Sequence[int] = (),
        event_shape: Sequence[int] = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = torch.Size(batch_shape)
        self._event_shape = torch.Size(event_shape)
        self._validate_args = self._validates if validate_args is None else validate_args
        if self._checks:
            for name, value in self._parameters().items():
                constraint = self.arg_constraints[name]
                if not is_dependent(constraint):
                    self._check(name, value, constraint.check(value), constraint)

    @property
    def _checks(self) -> bool:
        return self._validate_args and not interpreter.capturing()

    def _parameters(self) -> dict[str, Tensor]:
        """The parameters that were given, or computed since."""
        return {name: vars(self)[name] for name in self.arg_constraints if name in vars(self)}

    def _lacks(self, name: str) -> OnefoldNotImplementedError:
        return OnefoldNotImplementedError(f"{type(self).__name__} has no {name}")

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """The default of `validate_args` for distributions made from now on."""
        Distribution._validates = value

    @property
    def batch_shape(self) -> torch.Size:
        return self._batch_shape

    @property
    def event_shape(self) -> torch.Size:
        return self._event_shape

    @property
    def mean(self) -> Tensor:
        raise self._lacks("mean")

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        raise self._lacks("mode")

    @property
    def variance(self) -> Tensor:
        raise self._lacks("variance")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Random values of shape (*sample_shape, *batch_shape, *event_shape), without gradient."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """`sample` with gradients for the parameters, where the distribution has them."""
        raise self._lacks("rsample")

    def sample_n(self, n: int) -> Tensor:
        """`sample((n,))`, as torch spelled it before; warns."""
        warn("`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning)
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability, at `value`."""
        raise self._lacks("log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of values up to `value`."""
        raise self._lacks("cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which the probability is `value`; the inverse of `cdf`."""
        raise self._lacks("icdf")

    def entropy(self) -> Tensor:
        """The entropy, in nats."""
        raise self._lacks("entropy")

    def perplexity(self) -> Tensor:
        """e to the entropy."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution, along a new first dim.

        Without `expand` the batch dims have size 1.
        """
        raise self._lacks("enumerate_support")

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> Self:
        """The distribution with its parameters expanded to another batch shape."""
        new = self._get_checked_instance(type(self), _instance)
        Distribution.__init__(new, batch_shape, self._event_shape, False)
        for name, value in self._parameters().items():
            setattr(new, name, _expanded(value, batch_shape, self.arg_constraints[name]))
        self._expand_others(new, batch_shape)
        new._validate_args = self._validate_args
        return new

    def _expand_others(self, new: Self, batch_shape: Sequence[int]) -> None:
        """Give an expanded distribution what it has besides its parameters."""

    def _get_checked_instance(self, cls: type[object], _instance: object = None) -> Self:
        """The distribution that `expand` fills: a new one, unless a subclass gives its own."""
        return cast(Self, type(self).__new__(type(self)) if _instance is None else _instance)

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> tuple[int, ...]:
        return (*sample_shape, *self._batch_shape, *self._event_shape)

    def _extended(self, x: Tensor, sample_shape: Sequence[int]) -> Tensor:
        """A parameter in the shape of such a sample."""
        return in_shape(x, self._extended_shape(sample_shape))

    def _check(self, name: str, value: Tensor, allowed: Tensor, rule: str | Constraint) -> None:
        """Raise unless `allowed` holds for every element of the argument `value`.

        `rule` is what is allowed, as text or as the set, whose text reads its bounds.
        """
        if self._checks and not bool(allowed.all()):
            rule = rule if isinstance(rule, str) else rule.rule
            raise OnefoldValueError(
                f"{type(self).__name__}: {name} must be {rule}, but got {value.detach()}"
            )

    def _check_tensor(self, method: str, value: object) -> None:
        """Raise unless the argument of a method is a tensor, as it is in torch."""
        if self._validate_args and not isinstance(value, Tensor):
            raise OnefoldTypeError(
                f"{type(self).__name__}: The value argument to {method} must be a Tensor of "
                f"onefold, but got {kind_of(value)}"
            )

    def _check_value(self, method: str, value: Tensor) -> None:
        """Raise unless the argument of a method is a tensor of values that are possible."""
        self._check_tensor(method, value)
        if not self._validate_args:
            return
        wanted = (*self._batch_shape, *self._event_shape)
        events = len(self._event_shape)
        pairs = zip(reversed(value.shape), reversed(wanted), strict=False)
        fits = all(1 in pair or pair[0] == pair[1] for pair in pairs)
        if not fits or tuple(value.shape[value.ndim - events :]) != tuple(self._event_shape):
            raise OnefoldValueError(
                f"{type(self).__name__}: the value argument to {method} must end with event_shape "
                f"{tuple(self._event_shape)} and broadcast with {wanted}, but has shape "
                f"{tuple(value.shape)}"
            )
        support = self.support
        if self._checks and support is not None and not is_dependent(support):
            self._check("value", value, support.check(value), support)

    def _validate_sample(self, value: Tensor) -> None:
        """What subclasses that were written for torch call."""
        self._check_value("log_prob", value)

    def __repr__(self) -> str:
        """The class, with its parameters, or their shapes where they are not numbers."""
        shown = self._parameters()
        if interpreter.capturing() or any(x.numel() != 1 for x in shown.values()):
            parts = [f"{name}: {x.shape}" for name, x in shown.items()]
        else:
            parts = [f"{name}: {x.item()}" for name, x in shown.items()]
        return f"{type(self).__name__}({', '.join(parts)})"


def _expanded(value: Tensor, batch_shape: Sequence[int], constraint: Constraint) -> Tensor:
    events = int(constraint.event_dim)
    return value.expand((*batch_shape, *value.shape[value.ndim - events :]))
