"""The logistic normal distribution."""

from __future__ import annotations

from typing import ClassVar

from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .event_transforms import StickBreakingTransform
from .normal import Normal
from .transformed_distribution import TransformedDistribution


class LogisticNormal(TransformedDistribution):
    """K + 1 shares of a stick that K normal variables break, of means `loc` and `scale` > 0.

    >>> import onefold as flow
    >>> LogisticNormal(flow.zeros(3), flow.ones(3)).event_shape
    torch.Size([4])
    """

    arg_constraints: ClassVar = {
        "loc": constraints.real_vector,
        "scale": constraints.independent(constraints.positive, 1),
    }
    support = constraints.simplex

    def __init__(self, loc: Parameter, scale: Parameter, validate_args: bool | None = None) -> None:
        loc, scale = broadcast_all(loc, scale)
        self.loc, self.scale = (x if x.ndim else x.expand(1) for x in (loc, scale))
        base = Normal(self.loc, self.scale, False)
        super().__init__(base, StickBreakingTransform(), validate_args)
