"""Recurrent networks: torch's fused functions, a whole sequence as one op.

The batch may be split; the gradients of the weights are then partial sums. Each time step depends
on the one before, and a packed batch interleaves its samples: a split of these is gathered.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch

from ...errors import OnefoldRuntimeError, OnefoldTypeError, ShapeError
from .. import interpreter
from ..generated import register_variant
from ..meta import Meta
from ..op import Arg, required
from ..tensor import Tensor
from ..values import whole
from .cat_split import cat
from .dropout import dropout as drop
from .recorded_graph import RecordingOp
from .slicing import narrow
from .torch_op import Arguments, Dtypes, Given, Group, Outputs, Shapes

# The gates of each mode, as rows of its weights per unit of its hidden state.
GATES = {"rnn_tanh": 1, "rnn_relu": 1, "gru": 3, "lstm": 4}


class Recurrence(NamedTuple):
    """How a sequence is computed. A packed one has `batch_sizes`, the batch of each time step."""

    has_biases: bool
    num_layers: int
    bidirectional: bool
    batch_first: bool
    batch_sizes: tuple[int, ...] | None

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1


class SequenceOp(RecordingOp):
    """Layers of a recurrent network over a whole sequence: the output, and the last states

    Tensors are the input, one or two states, and weights.
    """

    records_in_graphs = True  # of all that a graph computes it would take the longest

    def __init__(self, name: str, states: int, function: Callable[..., Arg]) -> None:
        super().__init__(name, 1 + states)
        self.states = states
        self.function = function

    def state(self, tensors: Given) -> Arg:
        """The state as torch takes it: a list of two for LSTMs; cuDNN takes dense ones only."""
        given = [required(x).contiguous() for x in tensors[1 : 1 + self.states]]
        return given if self.states == 2 else given[0]

    def compute_again(self, tensors: Given, arguments: Arguments) -> Outputs:
        with _without_libraries():
            return self.compute(tensors, arguments)

    def compute(self, tensors: Given, arguments: Arguments) -> Outputs:
        how = _recurrence(arguments)
        weights = list(tensors[1 + self.states :])
        # cuDNN and oneDNN keep what the gradient needs only in training; nothing is dropped here.
        train = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
        given = (weights, how.has_biases, how.num_layers, 0.0, train, how.bidirectional)
        x, state = required(tensors[0]), self.state(tensors)
        if how.batch_sizes is None:
            return tuple(self.function(x, state, *given, how.batch_first))
        return tuple(self.function(x, torch.tensor(how.batch_sizes), state, *given))

    def infer(self, *args: Arg) -> tuple[Meta, ...]:
        x, *metas, arguments = args
        how = _recurrence(arguments)
        states = metas[: self.states]
        ndim = 3 if how.batch_sizes is None else 2
        if x.ndim != ndim or any(state.ndim != 3 for state in states):
            raise ShapeError(
                f"needs an input of {ndim} dims and states of 3, but got shapes "
                f"{', '.join(str(tuple(meta.shape)) for meta in (x, *states))}"
            )
        dims = (*x.shape[:-1], how.directions * states[0].shape[2])
        device = torch.device("cpu")
        shapes = [dims, *(tuple(state.shape) for state in states)]
        return tuple([Meta.of(shape, x.dtype, device=device) for shape in shapes])

    def groups(self, shapes: Shapes, dtypes: Dtypes, arguments: Arguments) -> Sequence[Group]:
        how = _recurrence(arguments)
        if how.batch_sizes is not None:
            return []
        at = 0 if how.batch_first else 1
        states = (1,) * self.states
        weights = (None,) * (len(shapes) - 1 - self.states)
        return [Group((at, *states, *weights), (at, *states))]

    def flops(self, inputs: Sequence[Meta | None], outputs: Sequence[Meta]) -> float:
        """Two per weight and element of the sequence."""
        x, *others = [meta for meta in inputs if meta is not None]
        weights = sum(meta.numel for meta in others[self.states :])
        return 2.0 * weights * x.numel / max(1, x.shape[-1])


# cuDNN may copy the weights together, which takes little of its time.
warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous")


@contextmanager
def _without_libraries() -> Iterator[None]:
    """A block without oneDNN and cuDNN, whose recurrent networks have no second gradients."""
    before = [is_enabled() for is_enabled, _ in _LIBRARIES]
    try:
        for _, enable in _LIBRARIES:
            enable(False)
        yield
    finally:
        for (_, enable), value in zip(_LIBRARIES, before, strict=True):
            enable(value)


# `torch.backends.mkldnn.flags` sets other flags, too, and warns of some.
_LIBRARIES = (
    (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    (torch._C._get_cudnn_enabled, torch._C._set_cudnn_enabled),
)


def _recurrence(arguments: Arguments) -> Recurrence:
    (how,) = arguments.positional
    assert isinstance(how, Recurrence)
    return how


SEQUENCES = {
    mode: SequenceOp(mode, 2 if mode == "lstm" else 1, getattr(torch, mode)) for mode in GATES
}


def sequence(
    mode: str,
    input: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    how: Recurrence,
    dropout: float = 0.0,
) -> tuple[Tensor, ...]:
    """The output of a recurrent network and its last states; see `lstm` for the shapes.

    `dropout` drops outputs of all layers but the last; layers are then an op each.
    """
    op = SEQUENCES[mode]
    if dropout == 0.0 or how.num_layers == 1:
        return op.call((input, *states, *params), Arguments((how,)))
    layer = Arguments((how._replace(num_layers=1),))
    directions, count = how.directions, len(params) // how.num_layers
    found: list[tuple[Tensor, ...]] = []
    for index in range(how.num_layers):
        of_layer = [narrow(state, 0, index * directions, directions) for state in states]
        weights = params[index * count : (index + 1) * count]
        input, *last = op.call((input, *of_layer, *weights), layer)
        found.append(tuple(last))
        if index < how.num_layers - 1:
            input = drop(input, dropout)
    return input, *[cat(parts, 0) for parts in zip(*found, strict=True)]


def known_values(vector: Tensor) -> tuple[int, ...]:
    """A vector of integers as numbers; in a capture, too, if they were known before it."""
    return tuple(known_vector(vector).tolist())


def known_vector(vector: Tensor) -> torch.Tensor:
    """`known_values` as a tensor of torch, which may be the memory of the vector."""
    if interpreter.get_current() is None or not isinstance(vector.shards, tuple):
        return whole(vector)
    with interpreter.using(None):
        return whole(vector)


def _states(mode: str, hx: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """The states in the form in which torch's functions take them."""
    if mode != "lstm":
        if not isinstance(hx, Tensor):
            raise OnefoldTypeError(f"{mode}: hx must be a Tensor, but got {type(hx).__name__}")
        return [hx]
    if isinstance(hx, Tensor) or len(hx) != 2:
        raise OnefoldRuntimeError("lstm expects two hidden states: hx=(h_0, c_0)")
    return list(hx)


def _sequence(
    mode: str,
    input: Tensor,
    hx: Tensor | Sequence[Tensor],
    params: Tensor | Sequence[Tensor],
    has_biases: bool | Sequence[Tensor],
    num_layers: int,
    dropout: float,
    train: float,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    batch_sizes: tuple[int, ...] | None = None
    if not isinstance(has_biases, bool):  # the second form of torch, of a packed sequence
        if not isinstance(hx, Tensor):
            raise OnefoldTypeError(f"{mode}: batch_sizes must be a Tensor, but got {hx!r}")
        batch_sizes, hx = known_values(hx), params
        params, has_biases, num_layers, dropout, train, bidirectional, batch_first = (
            has_biases, bool(num_layers), int(dropout), train, bidirectional, batch_first, False,
        )  # fmt: skip
    if isinstance(params, Tensor):
        raise OnefoldTypeError(f"{mode}: params must be a list of Tensors, but got one Tensor")
    how = Recurrence(has_biases, num_layers, bidirectional, batch_first, batch_sizes)
    states = _states(mode, hx)
    return sequence(mode, input, states, params, how, dropout if train else 0.0)


_SEQUENCE = """A whole {name} network, as torch.{mode}: the output and the last state{s}.

    {mode}(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
    {mode}(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)

    `input` is (T, N, I), or (N, T, I) with `batch_first`, `hx` {hx} of (layers * directions, N, H);
    `data` and `batch_sizes` are those of a packed sequence. `params` are w_ih, w_hh and, with
    `has_biases`, b_ih and b_hh for each layer and direction. Raises ShapeError for tensors of
    another number of dims. Example: see `nn.{layer}`.
    """
for _mode in GATES:
    _lstm = _mode == "lstm"
    register_variant(
        _mode,
        _sequence,
        _mode,
        _SEQUENCE.format(
            name=_mode.upper().replace("_", " with "),
            mode=_mode,
            s="s" if _lstm else "",
            hx="a pair" if _lstm else "a tensor",
            layer="RNN" if _mode.startswith("rnn") else _mode.upper(),
        ),
    )
