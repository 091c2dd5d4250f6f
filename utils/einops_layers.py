"""Layers of einops for models of Onefold (`einops.layers.onefold`), as `einops.layers.torch` has.

>>> import onefold as flow
>>> from einops.layers.onefold import Rearrange  # doctest: +SKIP
>>> flow.nn.Sequential(Rearrange("b c h w -> b (h w) c"), flow.nn.Linear(3, 8))  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

from einops.layers import RearrangeMixin, ReduceMixin
from einops.layers._einmix import _EinmixMixin

from ..engine.names import names
from ..engine.tensor import Tensor
from ..nn.init import uniform_
from ..nn.module import Module
from ..nn.parameter import Parameter

__all__ = ["EinMix", "Rearrange", "Reduce"]


class Rearrange(RearrangeMixin, Module):  # type: ignore[misc]
    """`einops.rearrange` as a layer."""

    def forward(self, input: Tensor) -> Any:
        return self._apply_recipe(input)


class Reduce(ReduceMixin, Module):  # type: ignore[misc]
    """`einops.reduce` as a layer."""

    def forward(self, input: Tensor) -> Any:
        return self._apply_recipe(input)


class EinMix(_EinmixMixin, Module):  # type: ignore[misc]
    """A linear layer whose pattern names the dims of the input, the weight and the output."""

    def _create_parameters(
        self,
        weight_shape: list[int],
        weight_bound: float,
        bias_shape: list[int] | None,
        bias_bound: float,
    ) -> None:
        self.weight = _uniform(weight_shape, weight_bound)
        bias = None if bias_shape is None else _uniform(bias_shape, bias_bound)
        self.register_parameter("bias", bias)

    def _create_rearrange_layers(
        self,
        pre_reshape_pattern: str | None,
        pre_reshape_lengths: dict[str, int] | None,
        post_reshape_pattern: str | None,
        post_reshape_lengths: dict[str, int] | None,
    ) -> None:
        self.pre_rearrange = _rearrange(pre_reshape_pattern, pre_reshape_lengths)
        self.post_rearrange = _rearrange(post_reshape_pattern, post_reshape_lengths)

    def forward(self, input: Tensor) -> Any:
        if self.pre_rearrange is not None:
            input = self.pre_rearrange(input)
        result = names.einsum(self.einsum_pattern, input, self.weight)
        if self.bias is not None:
            result = result + self.bias
        return result if self.post_rearrange is None else self.post_rearrange(result)


def _uniform(shape: list[int], bound: float) -> Parameter:
    weight = Parameter(names.empty(*shape))
    uniform_(weight, -bound, bound)
    return weight


def _rearrange(pattern: str | None, lengths: dict[str, int] | None) -> Rearrange | None:
    make: Any = Rearrange  # its arguments are those of einops' base
    return None if pattern is None else make(pattern, **(lengths or {}))
