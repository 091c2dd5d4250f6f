"""Recurrent layers for one time step: RNNCell, LSTMCell, GRUCell."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from ..engine.argument_types import DeviceLike
from ..engine.ops.creation import empty
from ..engine.ops.dims import squeeze, unsqueeze
from ..engine.ops.recurrent_steps import gru_cell, lstm_cell, rnn_relu_cell, rnn_tanh_cell
from ..engine.placement import Placement
from ..engine.sbp import SbpLike
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, OnefoldValueError
from . import init
from .linear import bias_of
from .module import Module
from .parameter import Parameter


class RNNCellBase(Module):
    """Owns `weight_ih`, `weight_hh` and the biases of one layer, `num_chunks` rows per unit.

    The input is (N, input_size), or (input_size,) without a batch. `placement` and `sbp` lay out
    the weights, a split of their dim 0 the biases too.
    """

    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        weights = {
            name: empty(
                (num_chunks * hidden_size, size),
                dtype=dtype,
                device=device,
                placement=placement,
                sbp=sbp,
            )
            for name, size in {"ih": input_size, "hh": hidden_size}.items()
        }
        for name, unset in weights.items():
            self.register_parameter(f"weight_{name}", Parameter(unset))
        for name, unset in weights.items():
            self.register_parameter(f"bias_{name}", Parameter(bias_of(unset)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters uniformly within 1 / sqrt(hidden_size), as torch does."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _step(
        self,
        cell: Callable[..., Tensor | tuple[Tensor, ...]],
        input: Tensor,
        given: tuple[Tensor, ...] | None,
        states: int = 1,
    ) -> tuple[Tensor, ...]:
        """The next states, from those `given` or zeros."""
        name = type(self).__name__
        if input.ndim not in (1, 2):
            raise OnefoldValueError(
                f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead"
            )
        for index, state in enumerate(given or ()):
            if state.ndim not in (1, 2):
                what = "hidden" if states == 1 else f"hx[{index}]"
                raise OnefoldValueError(
                    f"{name}: Expected {what} to be 1D or 2D, got {state.ndim}D instead"
                )
        is_batched = input.ndim == 2
        if not is_batched:
            input = unsqueeze(input, 0)
            given = None if given is None else tuple([unsqueeze(state, 0) for state in given])
        if given is None:
            given = (input.new_zeros(input.shape[0], self.hidden_size),) * states
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        found = cell(input, given if states == 2 else given[0], *weights)
        made = (found,) if isinstance(found, Tensor) else found
        return made if is_batched else tuple([squeeze(state, 0) for state in made])

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text


class RNNCell(RNNCellBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu.

    >>> import onefold as flow
    >>> flow.nn.RNNCell(4, 3)(flow.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__(
            input_size, hidden_size, bias, 1, device, dtype, placement=placement, sbp=sbp
        )
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise OnefoldRuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        cell = rnn_tanh_cell if self.nonlinearity == "tanh" else rnn_relu_cell
        return self._step(cell, input, None if hx is None else (hx,))[0]


class LSTMCell(RNNCellBase):
    """One step of an LSTM: (h, c) of the input and (h, c).

    >>> import onefold as flow
    >>> h, c = flow.nn.LSTMCell(4, 3)(flow.ones(2, 4))
    >>> h.shape, c.shape
    (torch.Size([2, 3]), torch.Size([2, 3]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__(
            input_size, hidden_size, bias, 4, device, dtype, placement=placement, sbp=sbp
        )

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        hidden, inner = self._step(lstm_cell, input, None if hx is None else tuple(hx), 2)
        return hidden, inner


class GRUCell(RNNCellBase):
    """One step of gated recurrent units.

    >>> import onefold as flow
    >>> flow.nn.GRUCell(4, 3)(flow.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__(
            input_size, hidden_size, bias, 3, device, dtype, placement=placement, sbp=sbp
        )

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(gru_cell, input, None if hx is None else (hx,))[0]
