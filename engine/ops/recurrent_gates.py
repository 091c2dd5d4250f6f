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
from ..op import Gradients, Needs, Op
from ..tensor import Tensor
from .arithmetic import add, mul, neg, sub
from .cat_split import cat
from .slicing import narrow


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
        of_input: Meta,
        of_state: Tensor,
        state: Meta,
    ) -> Gradients:
        _, reset, update, new, change = y
        dh, *others = dy
        only_state = not any(each is not None for each in others)
        if dh is not None and only_state and not interpreter.is_grad_enabled():
            return _gru_gates_grad(dh, of_state, *y[1:])
        dstate = _sum(dy[4], None if dh is None else mul(dh, update))
        dupdate = _sum(dy[2], None if dh is None else mul(dh, change))
        dnew = _sum(dy[3], dh, None if dstate is None else neg(dstate))
        dnew = None if dnew is None else mul(dnew, sub(1.0, mul(new, new)))
        of_new = narrow(of_state, 1, 2 * new.shape[1], new.shape[1])
        dreset = _sum(dy[1], None if dnew is None else mul(dnew, of_new))
        gates = [
            None if grad is None else mul(grad, mul(gate, sub(1.0, gate)))
            for grad, gate in ((dreset, reset), (dupdate, update))
        ]
        return (
            _joined((*gates, dnew), new),
            _joined((*gates, None if dnew is None else mul(dnew, reset)), new),
            dstate,
        )


def _sum(*parts: Tensor | None) -> Tensor | None:
    found: Tensor | None = None
    for part in parts:
        if part is not None:
            found = part if found is None else add(found, part)
    return found


def _joined(parts: Sequence[Tensor | None], like: Tensor) -> Tensor:
    return cat([mul(like, 0.0) if part is None else part for part in parts], 1)


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


gru_gates = several_of(GruGates(), "of_input of_state state")
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
