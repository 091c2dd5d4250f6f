"""The gates of recurrent cells as one op, for eager steps on the CPU.

There most of the time of a small step is that of starting its ops. Elsewhere the cells of
`recurrent_steps` are smaller ops, which layouts split, graphs fuse and Triton computes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels import recurrent_gates_ref as kernels
from ...kernels.select import uses_triton
from .. import interpreter
from ..dispatcher import several_of
from ..meta import Meta
from ..op import Arg, Gradients, Needs, Op
from ..sbp import broadcast, partial_sum
from ..signature import Axis, Rule, Signature, from_spec
from ..tensor import Tensor
from .arithmetic import add, mul, neg, sub
from .cat_split import cat
from .like import zeros_like
from .slicing import narrow


def _sum(*parts: Tensor | None) -> Tensor | None:
    found: Tensor | None = None
    for part in parts:
        if part is not None:
            found = part if found is None else add(found, part)
    return found


def _times(grad: Tensor | None, *factors: Tensor) -> Tensor | None:
    for factor in factors:
        grad = None if grad is None else mul(grad, factor)
    return grad


def _before_sigmoid(grad: Tensor | None, gate: Tensor) -> Tensor | None:
    return _times(grad, gate, sub(1.0, gate))


def _before_tanh(grad: Tensor | None, gate: Tensor) -> Tensor | None:
    return _times(grad, sub(1.0, mul(gate, gate)))


def _joined(parts: Sequence[Tensor | None], like: Tensor) -> Tensor:
    return cat([zeros_like(like) if part is None else part for part in parts], 1)


class GruGates(Op):
    """The new state of gated recurrent units and what its gradient needs, from the products"""

    name = "gru_gates"
    num_outputs = 5
    like = (2, 2, 2, 2, 2)
    spec = "n g*, n g*, n h* -> n h*, n h*, n h*, n h*, n h*"
    saves = (1,)
    saves_output = (1, 2, 3, 4)
    order = "always"
    flops_per_element = 4.0
    kernel = staticmethod(kernels.gru_gates)

    def vjp(
        self,
        needs: Needs,
        dy: Sequence[Tensor | None],
        y: Sequence[Tensor],
        x: Meta,
        of_state: Tensor,
        state: Meta,
    ) -> Gradients:
        _, reset, update, new, change = y
        dh, *others = dy
        only_state = not any(each is not None for each in others)
        if dh is not None and only_state and not interpreter.is_grad_enabled():
            return _gru_gates_grad(dh, of_state, *y[1:])
        dstate = _sum(dy[4], _times(dh, update))
        dupdate = _before_sigmoid(_sum(dy[2], _times(dh, change)), update)
        dnew = _sum(dy[3], dh, None if dstate is None else neg(dstate))
        dnew = _before_tanh(dnew, new)
        of_new = narrow(of_state, 1, 2 * new.shape[1], new.shape[1])
        dreset = _before_sigmoid(_sum(dy[1], _times(dnew, of_new)), reset)
        of_input = _joined((dreset, dupdate, dnew), new)
        return of_input, _joined((dreset, dupdate, _times(dnew, reset)), new), dstate


class GruGatesGrad(Op):
    """The gradients of gru_gates for the products and the state"""

    name = "gru_gates_grad"
    num_outputs = 3
    like = (1, 1, 0)
    spec = "n h*, n g*, n h*, n h*, n h*, n h* -> n g*, n g*, n h*"
    linear = "0"
    order = "always"
    differentiable = False
    flops_per_element = 4.0
    kernel = staticmethod(kernels.gru_gates_grad)


class LstmGates(Op):
    """The new states of an LSTM and what its gradient needs, from the gates and the inner state"""

    name = "lstm_gates"
    num_outputs = 7
    like = (1,) * 7
    spec = "n g*, n h* -> n h*, n h*, n h*, n h*, n h*, n h*, n h*"
    saves = ((1,), ())
    saves_output = ((2, 3, 4, 5, 6), (3, 5, 6))
    order = "always"
    flops_per_element = 2.0
    kernel = staticmethod(kernels.lstm_gates)

    def vjp(
        self,
        needs: Needs,
        dy: Sequence[Tensor | None],
        y: Sequence[Tensor],
        gates: Meta,
        state: Tensor,
    ) -> Gradients:
        _, _, enter, forget, new, leave, bent = y
        dhidden, dinner, *others = dy
        only_states = not any(each is not None for each in others)
        at_once = only_states and needs[0] and not interpreter.is_grad_enabled()
        if dhidden is not None and at_once:
            dinner = zeros_like(dhidden) if dinner is None else dinner
            return _lstm_gates_grad(dhidden, dinner, state, *y[2:])
        total = _sum(dinner, _before_tanh(_sum(dy[6], _times(dhidden, leave)), bent))
        dstate = _times(total, forget)
        if not needs[0]:
            return None, dstate
        dgates = (
            _before_sigmoid(_sum(dy[2], _times(total, new)), enter),
            _before_sigmoid(_sum(dy[3], _times(total, state)), forget),
            _before_tanh(_sum(dy[4], _times(total, enter)), new),
            _before_sigmoid(_sum(dy[5], _times(dhidden, bent)), leave),
        )
        return _joined(dgates, bent), dstate


class LstmGatesGrad(Op):
    """The gradients of lstm_gates for the gates and the inner state"""

    name = "lstm_gates_grad"
    num_outputs = 2
    spec = "n h*, n h*, n h*, n h*, n h*, n h*, n h*, n h* -> n g*, n h*"
    order = "always"
    differentiable = False
    flops_per_element = 4.0
    kernel = staticmethod(kernels.lstm_gates_grad)

    def infer(self, dhidden: Meta, dinner: Meta, state: Meta, *gates: Meta) -> tuple[Meta, Meta]:
        rows, size = state.shape
        return state.like(shape=(rows, 4 * size)), state

    def rule(self, axis: Axis, *args: Arg) -> Rule:
        # Linear in the gradients together.
        passes = Signature((partial_sum,) * 2 + (broadcast,) * 6, (partial_sum,) * 2)
        return [*from_spec(self.spec), passes]


gru_gates = several_of(GruGates(), "of_input of_state state")
lstm_gates = several_of(LstmGates(), "gates state")
_lstm_gates_grad = several_of(LstmGatesGrad(), "dhidden dinner state enter forget new leave bent")
_gru_gates_grad = several_of(GruGatesGrad(), "dy of_state reset update new change")


def fuses_gates(*tensors: Tensor) -> bool:
    """Whether the gates of a cell are one op: local tensors of one dtype, eager on the CPU."""
    first = tensors[0].meta
    return (
        first.placement is None
        and first.device_type == "cpu"
        and all(x.meta.dtype is first.dtype for x in tensors)
        and not interpreter.capturing()
        and not uses_triton("cpu")
    )
