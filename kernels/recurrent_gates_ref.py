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
