"""Recurrent cells: one step of one layer, of ops that layouts split and graphs fuse.

torch has a function for each, but its gradient by torch's autograd takes longer than these ops and
their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import OnefoldRuntimeError, OnefoldTypeError, ShapeError
from ..names import register_as, register_function
from ..tensor import Tensor
from .activation import relu, sigmoid, tanh
from .arithmetic import add, mul, sub
from .cast import cast
from .cat_split import chunk
from .matmul import linear
from .recurrent_gates import fuses_gates, gru_gates, lstm_gates


def _rnn_cell(name: str, activation: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def cell(
        input: Tensor,
        hx: Tensor,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Tensor:
        _check(name, 1, input, [hx], w_hh)
        return activation(add(linear(input, w_ih, b_ih), linear(hx, w_hh, b_hh)))

    return register_as(
        name,
        cell,
        f"""{activation.__name__}(W_ih x + b_ih + W_hh h + b_hh): input (N, I), state (N, H).

    Raises ShapeError for tensors of other shapes. Example: see `nn.RNNCell`.
    """,
    )


rnn_tanh_cell = _rnn_cell("rnn_tanh_cell", tanh)
rnn_relu_cell = _rnn_cell("rnn_relu_cell", relu)


@register_function
def gru_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """One step of gated recurrent units, as torch.gru_cell: input (N, I), state (N, H).

    Raises ShapeError for tensors of other shapes. Example: see `nn.GRUCell`.
    """
    _check("gru_cell", 3, input, [hx], w_hh)
    of_input, of_state = linear(input, w_ih, b_ih), linear(hx, w_hh, b_hh)
    state = _as(hx, of_input)
    if fuses_gates(of_input, of_state, state):
        return gru_gates(of_input, of_state, state)[0]
    reset, update, new = chunk(of_input, 3, 1)
    of_reset, of_update, of_new = chunk(of_state, 3, 1)
    new = tanh(add(new, mul(sigmoid(add(reset, of_reset)), of_new)))
    return add(new, mul(sigmoid(add(update, of_update)), sub(state, new)))


@register_function
def lstm_cell(
    input: Tensor,
    hx: Tensor | Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM, as torch.lstm_cell: input (N, I), each state (N, H).

    Raises ShapeError for tensors of other shapes. Example: see `nn.LSTMCell`.
    """
    if isinstance(hx, Tensor) or len(hx) != 2:
        raise OnefoldRuntimeError("lstm_cell expects two hidden states: hx=(h_0, c_0)")
    hidden, inner = hx
    _check("lstm_cell", 4, input, hx, w_hh)
    gates = add(linear(input, w_ih, b_ih), linear(hidden, w_hh, b_hh))
    inner = _as(inner, gates)
    if fuses_gates(gates, inner):
        hidden, inner, *_ = lstm_gates(gates, inner)
        return hidden, inner
    enter, forget, new, leave = chunk(gates, 4, 1)
    inner = add(mul(sigmoid(forget), inner), mul(sigmoid(enter), tanh(new)))
    return mul(sigmoid(leave), tanh(inner)), inner


def _check(name: str, gates: int, input: Tensor, states: Sequence[Tensor], w_hh: Tensor) -> None:
    for state in states:
        if not isinstance(state, Tensor):
            raise OnefoldTypeError(f"{name}: hx must be a Tensor, but got {type(state).__name__}")
    shapes = [tuple(x.shape) for x in (input, *states, w_hh)]
    if any(len(shape) != 2 for shape in shapes):
        raise ShapeError(f"{name} needs tensors of 2 dims, but got shapes {shapes}")
    size = shapes[-1][1]
    if shapes[-1][0] != gates * size or any(s != (shapes[0][0], size) for s in shapes[1:-1]):
        raise ShapeError(
            f"{name}: for an input of shape {shapes[0]} and w_hh of shape ({gates * size}, {size}) "
            f"states must have shape {(shapes[0][0], size)}, but got {shapes[1:-1]} and w_hh of "
            f"shape {shapes[-1]}"
        )


def _as(state: Tensor, gates: Tensor) -> Tensor:
    """A state in the dtype of the gates, which autocast lowers."""
    return state if state.dtype == gates.dtype else cast(state, gates.dtype)
