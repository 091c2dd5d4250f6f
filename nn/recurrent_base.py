"""RNNBase: the parameters, the checks and the call of recurrent layers over sequences."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..engine import interpreter
from ..engine.argument_types import DeviceLike
from ..engine.ops.creation import empty
from ..engine.ops.dims import squeeze, unsqueeze
from ..engine.ops.index import index_select
from ..engine.ops.recurrent_networks import GATES, Recurrence, known_values, sequence
from ..engine.placement import Placement
from ..engine.sbp import SbpLike
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError, warn
from . import init
from .linear import bias_of
from .module import Module
from .parameter import Parameter
from .utils.rnn import PackedSequence

State = Tensor | tuple[Tensor, Tensor]  # LSTMs have two
BatchSizes = Tensor | tuple[int, ...] | None  # of a packed sequence, at each time step


class RNNBase(Module):
    """Layers of a recurrent network, with torch's names of the parameters (`weight_ih_l0`, ...).

    The input is (T, N, input_size), (N, T, input_size) with `batch_first`, (T, input_size) without
    a batch, or a PackedSequence. A whole sequence is one op, which torch computes on each shard of
    the batch; a packed batch, whose samples are interleaved, is computed on every rank.
    `placement` and `sbp` lay out the weights, a split of their dim 0 the biases too. Raises
    OnefoldValueError and OnefoldTypeError for arguments that torch refuses.
    """

    def __init__(
        self,
        mode: str,
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
        super().__init__()
        if mode.lower() not in GATES:
            raise OnefoldValueError(f"Unrecognized RNN mode: {mode}")
        _check_flags(bias=bias, batch_first=batch_first)
        _check_sizes(input_size, hidden_size, num_layers, proj_size)
        _check_dropout(dropout, num_layers)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        rows = GATES[mode.lower()] * hidden_size
        wide = self._output_size * self._directions
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for suffix in ("", "_reverse")[: self._directions]:
                columns = input_size if layer == 0 else wide
                shapes = {"weight_ih": (rows, columns), "weight_hh": (rows, self._output_size)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                made = {
                    name: empty(shape, dtype=dtype, device=device, placement=placement, sbp=sbp)
                    for name, shape in shapes.items()
                }
                last = {"weight_hr": made.pop("weight_hr")} if proj_size else {}
                if bias:
                    made |= {f"bias_{kind}": bias_of(made["weight_ih"]) for kind in ("ih", "hh")}
                names = {f"{name}_l{layer}{suffix}": each for name, each in (made | last).items()}
                for name, each in names.items():
                    self.register_parameter(name, Parameter(each))
                self._all_weights.append(list(names))
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _output_size(self) -> int:
        """The output size of one direction."""
        return self.proj_size or self.hidden_size

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Accepted and ignored: the memory of parameters is laid out by their placement."""

    def reset_parameters(self) -> None:
        """Draw all parameters uniformly within 1 / sqrt(hidden_size), as torch does."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def check_input(self, input: Tensor, batch_sizes: BatchSizes) -> None:
        """Raise unless the input has the weights' dtype, and the dims and the size that fit.

        In mixed precision both are cast to one dtype.
        """
        dtype = getattr(self, self._all_weights[0][0]).dtype
        current = interpreter.get_current()
        mixed = current is not None and current.dtype_of_products(input.meta.device_type)
        if input.dtype != dtype and not mixed:
            raise OnefoldValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({dtype}). Convert "
                f"input: input.to({dtype}), or convert model: model.to({input.dtype})"
            )
        ndim = 3 if batch_sizes is None else 2
        if input.ndim != ndim:
            raise OnefoldRuntimeError(f"input must have {ndim} dimensions, got {input.ndim}")
        if input.shape[-1] != self.input_size:
            raise OnefoldRuntimeError(
                "input.size(-1) must be equal to input_size. Expected "
                f"{self.input_size}, got {input.shape[-1]}"
            )

    def get_expected_hidden_size(
        self, input: Tensor, batch_sizes: BatchSizes
    ) -> tuple[int, int, int]:
        """The shape of the hidden state for this input; `batch_sizes` may be numbers."""
        if batch_sizes is None:
            batch = input.shape[0 if self.batch_first else 1]
        elif isinstance(batch_sizes, Tensor):
            batch = known_values(batch_sizes)[0]
        else:
            batch = batch_sizes[0]
        return (self.num_layers * self._directions, batch, self._output_size)

    def check_hidden_size(
        self,
        hx: Tensor,
        expected_hidden_size: tuple[int, int, int],
        msg: str = "Expected hidden size {}, got {}",
    ) -> None:
        """Raise OnefoldRuntimeError unless the state has this shape."""
        if tuple(hx.shape) != expected_hidden_size:
            raise OnefoldRuntimeError(msg.format(expected_hidden_size, list(hx.shape)))

    def _state_shapes(self, input: Tensor, batch_sizes: BatchSizes) -> list[tuple[int, int, int]]:
        """The shape of each state."""
        return [self.get_expected_hidden_size(input, batch_sizes)]

    def _check_states(self, states: list[Tensor], ndim: int) -> None:
        (hx,) = states
        if hx.ndim != ndim:
            raise OnefoldRuntimeError(
                f"For {BATCHED[ndim]} {ndim}-D input, hx should also be {ndim}-D but got "
                f"{hx.ndim}-D tensor"
            )

    def forward(self, input: Any, hx: Any = None) -> Any:
        """(output, state): the output of the last layer at each time step, and the last state.

        The state is a pair for LSTMs. It is zeros if `hx` is None.
        """
        given = None if hx is None else [hx] if isinstance(hx, Tensor) else list(hx)
        if not isinstance(input, PackedSequence):
            output, states = self._padded(input, given)
            return output, _state_of(states)
        data, sizes, order, inverse = input
        output, states = self._run(data, _ordered(given, order), sizes)
        packed = PackedSequence(output, sizes, order, inverse)
        return packed, _state_of(_ordered(states, inverse) or [])

    def _padded(self, input: Tensor, given: list[Tensor] | None) -> tuple[Tensor, list[Tensor]]:
        name = type(self).__name__
        if input.ndim not in (2, 3):
            tail = " tensor" if name == "RNN" else ""
            raise OnefoldValueError(
                f"{name}: Expected input to be 2D or 3D, got {input.ndim}D{tail} instead"
            )
        if given is not None:
            self._check_states(given, input.ndim)
        if input.ndim == 3:
            return self._run(input, given, None)
        batch_dim = 0 if self.batch_first else 1
        states = None if given is None else [unsqueeze(state, 1) for state in given]
        output, last = self._run(unsqueeze(input, batch_dim), states, None)
        return squeeze(output, batch_dim), [squeeze(state, 1) for state in last]

    def _run(
        self, input: Tensor, given: list[Tensor] | None, batch_sizes: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        sizes = None if batch_sizes is None else known_values(batch_sizes)
        self.check_input(input, sizes)
        shapes = self._state_shapes(input, sizes)
        if given is None:
            zeros = {shape: input.new_zeros(shape) for shape in shapes}
            given = [zeros[shape] for shape in shapes]
        for index, (state, shape) in enumerate(zip(given, shapes, strict=True)):
            name = f"hidden[{index}]" if len(shapes) > 1 else "hidden"
            self.check_hidden_size(state, shape, f"Expected {name} size {{}}, got {{}}")
        weights = [weight for weights in self.all_weights for weight in weights]
        first = self.batch_first and sizes is None
        how = Recurrence(self.bias, self.num_layers, self.bidirectional, first, sizes)
        dropout = self.dropout if self.training else 0.0
        output, *last = sequence(self.mode.lower(), input, given, weights, how, dropout)
        return output, last

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in _DEFAULTS.items():
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text


BATCHED = {2: "unbatched", 3: "batched"}
_DEFAULTS: dict[str, object] = {
    "proj_size": 0,
    "num_layers": 1,
    "bias": True,
    "batch_first": False,
    "dropout": 0,
    "bidirectional": False,
}


def _ordered(states: list[Tensor] | None, order: Tensor | None) -> list[Tensor] | None:
    """States with their batch in another order."""
    if states is None or order is None:
        return states
    return [index_select(state, 1, order) for state in states]


def _state_of(states: list[Tensor]) -> State:
    return states[0] if len(states) == 1 else (states[0], states[1])


def _check_flags(**flags: object) -> None:
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise OnefoldTypeError(f"{name} should be of type bool, got: {type(value).__name__}")


def _check_sizes(input_size: int, hidden_size: int, num_layers: int, proj_size: int) -> None:
    for name, size in {"input_size": input_size, "hidden_size": hidden_size}.items():
        if not isinstance(size, int):
            raise OnefoldTypeError(f"{name} should be of type int, got: {type(size).__name__}")
    sizes = {"input_size": input_size, "hidden_size": hidden_size, "num_layers": num_layers}
    for name, size in sizes.items():
        if size <= 0:
            raise OnefoldValueError(f"{name} must be greater than zero")
    if proj_size < 0:
        raise OnefoldValueError(
            "proj_size should be a positive integer or zero to disable projections"
        )
    if proj_size >= hidden_size:
        raise OnefoldValueError("proj_size has to be smaller than hidden_size")


def _check_dropout(dropout: object, num_layers: int) -> None:
    if not isinstance(dropout, int | float) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
        raise OnefoldValueError(
            "dropout should be a number in range [0, 1] representing the probability of an "
            f"element being zeroed, but got {dropout!r}"
        )
    if dropout > 0 and num_layers == 1:
        warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout "
            f"expects num_layers greater than 1, but got dropout={dropout} and "
            f"num_layers={num_layers}",
            UserWarning,
        )
