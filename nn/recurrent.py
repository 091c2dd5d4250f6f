"""Recurrent layers over sequences: RNN, LSTM, GRU."""

from __future__ import annotations

import torch

from ..engine.argument_types import DeviceLike
from ..engine.placement import Placement
from ..engine.sbp import SbpLike
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, OnefoldValueError
from .recurrent_base import BATCHED, BatchSizes, RNNBase


class _Unprojected(RNNBase):
    """A layer without `proj_size`."""

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        proj_size: int | None,
        device: DeviceLike | None,
        dtype: torch.dtype | None,
        placement: Placement | None,
        sbp: SbpLike | None,
    ) -> None:
        if proj_size is not None:
            raise OnefoldValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__(
            mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            0, device, dtype, placement=placement, sbp=sbp,
        )  # fmt: skip


class RNN(_Unprojected):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh) in each layer, or relu; see RNNBase.

    >>> import onefold as flow
    >>> output, h = flow.nn.RNN(4, 3)(flow.ones(5, 2, 4))
    >>> output.shape, h.shape
    (torch.Size([5, 2, 3]), torch.Size([1, 2, 3]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        proj_size: int | None = None,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise OnefoldValueError(
                f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        super().__init__(
            f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first,
            dropout, bidirectional, proj_size, device, dtype, placement, sbp,
        )  # fmt: skip
        self.nonlinearity = nonlinearity


class GRU(_Unprojected):
    """Gated recurrent units in each layer; see RNNBase.

    >>> import onefold as flow
    >>> output, h = flow.nn.GRU(4, 3, batch_first=True)(flow.ones(2, 5, 4))
    >>> output.shape, h.shape
    (torch.Size([2, 5, 3]), torch.Size([1, 2, 3]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        proj_size: int | None = None,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            proj_size, device, dtype, placement, sbp,
        )  # fmt: skip


class LSTM(RNNBase):
    """Long short-term memory in each layer, with two states (h, c); see RNNBase.

    With `proj_size` the hidden state is projected to that size after each step.

    >>> import onefold as flow
    >>> output, (h, c) = flow.nn.LSTM(4, 3, bidirectional=True)(flow.ones(5, 2, 4))
    >>> output.shape, h.shape
    (torch.Size([5, 2, 6]), torch.Size([2, 2, 3]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: DeviceLike | None = None,
        dtype: torch.dtype | None = None,
        *,
        placement: Placement | None = None,
        sbp: SbpLike | None = None,
    ) -> None:
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            proj_size, device, dtype, placement=placement, sbp=sbp,
        )  # fmt: skip

    def get_expected_cell_size(
        self, input: Tensor, batch_sizes: BatchSizes
    ) -> tuple[int, int, int]:
        """The shape of the cell state for this input."""
        return (*self.get_expected_hidden_size(input, batch_sizes)[:2], self.hidden_size)

    def _state_shapes(self, input: Tensor, batch_sizes: BatchSizes) -> list[tuple[int, int, int]]:
        cell = self.get_expected_cell_size(input, batch_sizes)
        return [*super()._state_shapes(input, batch_sizes), cell]

    def _check_states(self, states: list[Tensor], ndim: int) -> None:
        if len(states) != 2 or any(state.ndim != ndim for state in states):
            found = ", ".join(f"{state.ndim}-D" for state in states)
            raise OnefoldRuntimeError(
                f"For {BATCHED[ndim]} {ndim}-D input, hx and cx should also be {ndim}-D but got "
                f"({found}) tensors"
            )
