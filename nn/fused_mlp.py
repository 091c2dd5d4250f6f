"""OneFlow's layer of several linear layers with relu."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from ..engine.argument_types import DeviceLike, TypedLayout
from ..engine.ops.activation import relu
from ..engine.ops.creation import empty
from ..engine.ops.dropout import dropout
from ..engine.ops.matmul import linear
from ..engine.placement import Placement
from ..engine.sbp import SbpLike
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from . import init
from .linear import bias_of
from .module import Module
from .parameter import Parameter


class FusedMLP(Module):
    """Linear layers with relu and dropout after each; graphs fuse these with the products' biases.

    The last layer has no relu if `skip_final_activation`. Parameters are `weight_0`, `bias_0` and
    so on. Raises OnefoldValueError unless there is one dropout rate for each hidden layer.

    >>> import onefold as flow
    >>> flow.nn.FusedMLP(4, [8, 8], 2)(flow.ones(3, 4)).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: Sequence[int],
        out_features: int,
        hidden_dropout_rate: Sequence[float] | None = None,
        out_dropout_rate: float = 0.0,
        skip_final_activation: bool = False,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__()
        rates = [0.0] * len(hidden_features) if hidden_dropout_rate is None else hidden_dropout_rate
        if len(rates) != len(hidden_features):
            raise OnefoldValueError(
                f"FusedMLP needs a dropout rate for each of {len(hidden_features)} hidden layers, "
                f"but got {len(rates)}"
            )
        self.in_features = in_features
        self.hidden_features = tuple(hidden_features)
        self.out_features = out_features
        self.dropout_rates = (*rates, out_dropout_rate)
        self.skip_final_activation = skip_final_activation
        where: TypedLayout = {"dtype": dtype, "device": device, "placement": placement, "sbp": sbp}
        sizes = (in_features, *hidden_features, out_features)
        for number, (inputs, outputs) in enumerate(pairwise(sizes)):
            weight = empty((outputs, inputs), **where)
            self.register_parameter(f"weight_{number}", Parameter(weight))
            self.register_parameter(f"bias_{number}", Parameter(bias_of(weight)))
        self.reset_parameters()

    def weight(self, i: int) -> Tensor:
        """The weight of the layer `i`."""
        made: Tensor = getattr(self, f"weight_{i}")
        return made

    def bias(self, i: int) -> Tensor:
        """The bias of the layer `i`."""
        made: Tensor = getattr(self, f"bias_{i}")
        return made

    def weights(self) -> list[Tensor]:
        """The weights of all layers."""
        return [self.weight(i) for i in range(len(self.dropout_rates))]

    def biases(self) -> list[Tensor]:
        """The biases of all layers."""
        return [self.bias(i) for i in range(len(self.dropout_rates))]

    def reset_parameters(self) -> None:
        """Draw weights and biases uniformly within 1 / sqrt(inputs), as `Linear` does."""
        for weight, bias in zip(self.weights(), self.biases(), strict=True):
            bound = init.default_bound(weight.shape[1])
            init.uniform_(weight, -bound, bound)
            init.uniform_(bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        last = len(self.dropout_rates) - 1
        for i, rate in enumerate(self.dropout_rates):
            x = linear(x, self.weight(i), self.bias(i))
            if i < last or not self.skip_final_activation:
                x = relu(x)
            if rate:
                x = dropout(x, rate, self.training)
        return x

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, hidden_features={list(self.hidden_features)}, "
            f"out_features={self.out_features}, "
            f"skip_final_activation={self.skip_final_activation}"
        )
