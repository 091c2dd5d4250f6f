"""Location-scale families: distributions of real numbers that are moved and stretched."""

from __future__ import annotations

from typing import ClassVar

from ..engine.tensor import Tensor
from . import constraints
from .broadcast_parameters import Parameter, broadcast_all
from .distribution import Distribution


class LocationScale(Distribution):
    """Symmetric around the mode `loc`, with `scale` > 0. The two broadcast."""

    has_rsample = True
    arg_constraints: ClassVar = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Parameter, scale: Parameter, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc
