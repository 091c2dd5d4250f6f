"""Distribution: what all distributions share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch

from ..engine import interpreter
from ..engine.argument_types import Number
from ..engine.grad_mode import no_grad
from ..engine.tensor import Tensor, tensor_ops
from ..errors import (
    OnefoldNotImplementedError,
    OnefoldTypeError,
    OnefoldValueError,
    kind_of,
)

Parameter = Tensor | Number


class Distribution:
    """Independent random variables: `batch_shape` of them, each a tensor of `event_shape`.

    Parameters and samples may be global: a sample has the layout of the parameters (broadcast where
    they are partial), and the same numbers for every layout. With `validate_args` (the default)
    parameters and values are checked, which reads them; in graphs, where values are not known, it
    is left out. Raises OnefoldValueError for parameters and values that are not allowed, and
    OnefoldTypeError for a value that is no tensor.
    """

    has_rsample: ClassVar[bool] = False
    has_enumerate_support: ClassVar[bool] = False
    parameters: ClassVar[tuple[str, ...]] = ()  # attributes of shape batch_shape
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

    def _lacks(self, name: str) -> OnefoldNotImplementedError:
        return OnefoldNotImplementedError(f"{type(self).__name__} has no {name}")

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions made from now on check their arguments, unless they are told."""
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

    def expand(self, batch_shape: Sequence[int]) -> Self:
        """The distribution with its parameters expanded to another batch shape."""
        new = type(self).__new__(type(self))
        Distribution.__init__(new, batch_shape, self._event_shape, False)
        for name in self.parameters:
            if name in self.__dict__:
                setattr(new, name, getattr(self, name).expand(self._parameter_shape(batch_shape)))
        new._validate_args = self._validate_args
        return new

    def _parameter_shape(self, batch_shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(batch_shape)

    def _extended_shape(self, sample_shape: Sequence[int]) -> tuple[int, ...]:
        return (*sample_shape, *self._batch_shape, *self._event_shape)

    def _check(self, name: str, value: Tensor, allowed: Tensor, rule: str) -> None:
        """Raise unless `allowed` holds for every element of the argument `value`."""
        if not self._validate_args or interpreter.capturing():
            return
        if not bool(allowed.detach().all()):
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

    def __repr__(self) -> str:
        """The class, with its parameters, or their shapes where they are not numbers."""
        shown = {name: getattr(self, name) for name in self.parameters if name in self.__dict__}
        if interpreter.capturing() or any(x.numel() != 1 for x in shown.values()):
            parts = [f"{name}: {x.shape}" for name, x in shown.items()]
        else:
            parts = [f"{name}: {x.item()}" for name, x in shown.items()]
        return f"{type(self).__name__}({', '.join(parts)})"


def broadcast_all(*given: Parameter) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape, beside each other."""
    tensors = [x for x in given if isinstance(x, Tensor)]
    made: list[Any] = []
    for x in given:
        if isinstance(x, Tensor):
            made.append(x)
        elif tensors:
            like = tensors[0]
            floats = like if like.meta.is_floating else like.float()
            made.append(tensor_ops.full_like(floats, x))
        else:
            made.append(tensor_ops.tensor(x, dtype=torch.get_default_dtype()))
    same = all(x.shape == made[0].shape for x in made)
    return tuple(made if same else tensor_ops.broadcast_tensors(*made))
