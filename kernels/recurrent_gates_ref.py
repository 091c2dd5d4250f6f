"""The gates of recurrent cells, from what the products of a step give."""

from __future__ import annotations

import torch
from torch import Tensor

_sigmoid_grad = torch.ops.aten.sigmoid_backward.default
_tanh_grad = torch.ops.aten.tanh_backward.default


def gru_gates(of_input: Tensor, of_state: Tensor, state: Tensor) -> tuple[Tensor, ...]:
    """The new state of gated recurrent units, their gates (reset, update, new), and state - new.

    The products are (N, 3H), all others (N, H). The bits are those of the same in single ops.
    """
    reset_x, update_x, new_x = of_input.chunk(3, 1)
    reset_h, update_h, new_h = of_state.chunk(3, 1)
    reset = torch.add(reset_x, reset_h).sigmoid_()
    update = torch.add(update_x, update_h).sigmoid_()
    new = torch.mul(reset, new_h).add_(new_x).tanh_()
    change = torch.sub(state, new)
    return torch.mul(change, update).add_(new), reset, update, new, change


def gru_gates_grad(
    dy: Tensor, of_state: Tensor, reset: Tensor, update: Tensor, new: Tensor, change: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients for the inputs of `gru_gates`, from that of the new state."""
    dstate = torch.mul(dy, update)
    dupdate = _sigmoid_grad(torch.mul(change, dy), update)
    dnew = _tanh_grad(torch.sub(dy, dstate), new)
    size = new.shape[1]
    dreset = _sigmoid_grad(torch.mul(dnew, of_state.narrow(1, 2 * size, size)), reset)
    of_new = torch.mul(dnew, reset)
    return torch.cat((dreset, dupdate, dnew), 1), torch.cat((dreset, dupdate, of_new), 1), dstate


def lstm_gates(gates: Tensor, state: Tensor) -> tuple[Tensor, ...]:
    """The new states of an LSTM (hidden, inner), its gates, and the tanh of the inner state.

    The gates (enter, forget, new, leave) are given as (N, 4H); all others are (N, H). The bits are
    those of the same in single ops.
    """
    enter, forget, new, leave = gates.chunk(4, 1)
    enter, forget, leave = enter.sigmoid(), forget.sigmoid(), leave.sigmoid()
    new = new.tanh()
    inner = torch.mul(forget, state).add_(torch.mul(enter, new))
    bent = inner.tanh()
    return torch.mul(leave, bent), inner, enter, forget, new, leave, bent


def lstm_gates_grad(
    dhidden: Tensor, dinner: Tensor, state: Tensor,
    enter: Tensor, forget: Tensor, new: Tensor, leave: Tensor, bent: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradients for the inputs of `lstm_gates`, from those of the new states."""
    total = _tanh_grad(torch.mul(dhidden, leave), bent).add_(dinner)
    parts = (
        _sigmoid_grad(torch.mul(total, new), enter),
        _sigmoid_grad(torch.mul(total, state), forget),
        _tanh_grad(torch.mul(total, enter), new),
        _sigmoid_grad(torch.mul(dhidden, bent), leave),
    )
    return torch.cat(parts, 1), torch.mul(total, forget)
