"""Packed sequences: batches of sequences of several lengths, without padding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self

import torch

from ...engine import interpreter
from ...engine.ops.cat_split import stack
from ...engine.ops.device_transfer import to
from ...engine.ops.index import index_select
from ...engine.ops.index_parsing import like_index
from ...engine.ops.pad import pad
from ...engine.ops.recurrent_networks import known_values, known_vector
from ...engine.ops.slicing import narrow, select
from ...engine.ops.view import reshape
from ...engine.ops.where import where
from ...engine.tensor import Tensor
from ...engine.values import from_torch
from ...errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Fields):
    """The elements of sequences, time step by time step, and how many each step has.

    Made by `pack_padded_sequence` and `pack_sequence`; recurrent layers take and return it.
    `data` is (elements, *), in any layout; `batch_sizes` is local, on the CPU. `sorted_indices` are
    the sequences in the order of their lengths, `unsorted_indices` the inverse. Raises
    OnefoldValueError for batch sizes elsewhere.

    >>> import onefold as flow
    >>> packed = flow.nn.utils.rnn.pack_sequence([flow.tensor([1, 2, 3]), flow.tensor([4])])
    >>> packed.data.tolist(), packed.batch_sizes.tolist()
    ([1, 4, 2, 3], [2, 1, 1])
    """

    def __new__(
        cls,
        data: Tensor | Sequence[Tensor],
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> Self:
        if not isinstance(data, Tensor):
            data, batch_sizes = data
        if batch_sizes is None:
            raise OnefoldTypeError("PackedSequence needs batch_sizes=, or a pair as data=")
        if batch_sizes.is_global or batch_sizes.device.type != "cpu":
            raise OnefoldValueError(
                "batch_sizes should always be a local tensor on CPU, but got "
                f"{batch_sizes.meta!r}. Make packed sequences with pack_sequence or "
                "pack_padded_sequence"
            )
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, convert: Callable[[Tensor], Tensor]) -> Self:
        """The converted data, with the indices moved to its device."""
        data = convert(self.data)
        if data is self.data:
            return self
        device = data.meta.device
        indices = [
            index if index is None or device is None else to(index, device)
            for index in (self.sorted_indices, self.unsorted_indices)
        ]
        return type(self)(data, self.batch_sizes, *indices)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """The data in another dtype or on another device; itself if nothing changes."""
        return self._with(lambda data: to(data, *args, **kwargs))

    def cuda(self, device: int | None = None) -> Self:
        return self._with(lambda data: data.cuda(device))

    def cpu(self) -> Self:
        return self._with(lambda data: data.cpu())

    def double(self) -> Self:
        return self.to(dtype=torch.float64)

    def float(self) -> Self:
        return self.to(dtype=torch.float32)

    def half(self) -> Self:
        return self.to(dtype=torch.float16)

    def long(self) -> Self:
        return self.to(dtype=torch.int64)

    def int(self) -> Self:
        return self.to(dtype=torch.int32)

    def short(self) -> Self:
        return self.to(dtype=torch.int16)

    def char(self) -> Self:
        return self.to(dtype=torch.int8)

    def byte(self) -> Self:
        return self.to(dtype=torch.uint8)

    @property
    def is_cuda(self) -> bool:
        return self.data.is_cuda


def _known(values: torch.Tensor, like: Tensor | None = None) -> Tensor:
    """A local tensor, or one laid out for `like`, whose values can be read in a capture, too."""
    with interpreter.using(None):
        return from_torch(values) if like is None else like_index(values, like)


def _element(value: float, dtype: torch.dtype) -> Any:
    """A padding value as a number that does not widen tensors of this dtype."""
    return torch.tensor(value).to(dtype).item()


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The inverse of a permutation, in its layout; None for None.

    >>> import onefold as flow
    >>> flow.nn.utils.rnn.invert_permutation(flow.tensor([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    return None if permutation is None else permutation.argsort()


def pack_padded_sequence(
    input: Tensor,
    lengths: Tensor | Sequence[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """Pack sequences that are padded to one length: (T, B, *), or (B, T, *) with `batch_first`.

    `lengths` decrease, unless `enforce_sorted` is off. Their values are read, so in a graph they
    must be numbers or be known when it is captured. Raises OnefoldRuntimeError for lengths that are
    not positive, too large, not sorted or not as many as the batch.

    >>> import onefold as flow
    >>> packed = flow.nn.utils.rnn.pack_padded_sequence(flow.ones(3, 2), [3, 1])
    >>> packed.batch_sizes.tolist()
    [2, 1, 1]
    """
    if isinstance(lengths, Tensor):
        known = known_vector(lengths).to("cpu", torch.int64)
    else:
        known = torch.tensor([int(n) for n in lengths], dtype=torch.int64)
    order = None
    if not enforce_sorted:
        known, order = torch.sort(known, descending=True)
    batch, steps = input.shape[:2] if batch_first else (input.shape[1], input.shape[0])
    _check_lengths(known, batch, steps)
    source = torch.arange(batch) if order is None else order
    step = torch.arange(int(known[0]))[:, None]
    inside = known > step
    batch_sizes = inside.sum(1)
    places = (source * steps + step if batch_first else step * batch + source)[inside]
    flat = reshape(input, (batch * steps, *input.shape[2:]))
    data = index_select(flat, 0, like_index(places, input))
    if order is None:
        return PackedSequence(data, _known(batch_sizes))
    indices = [_known(index, input) for index in (order, torch.argsort(order))]
    return PackedSequence(data, _known(batch_sizes), *indices)


def _check_lengths(lengths: torch.Tensor, batch: int, steps: int) -> None:
    """Raise OnefoldRuntimeError for lengths that a padded batch cannot have."""
    given = lengths.tolist()
    if len(given) != batch:
        raise OnefoldRuntimeError(
            "Expected `len(lengths)` to be equal to batch_size, but got "
            f"{len(given)} (batch_size={batch})"
        )
    if batch == 0 or min(given) <= 0:
        raise OnefoldRuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            f"that is <= 0: {given}"
        )
    if any(after > before for before, after in pairwise(given)):
        raise OnefoldRuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True, but "
            f"got {given}. You can pass `enforce_sorted=False` to "
            "pack_padded_sequence and/or pack_sequence to sidestep this requirement."
        )
    if given[0] > steps:
        raise OnefoldRuntimeError(
            f"Expected lengths of at most {steps}, the number of time steps of the input, but got "
            f"{given}"
        )


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The padded batch (T, B, *), or (B, T, *) with `batch_first`, and the lengths, on the CPU.

    T is the largest length, or `total_length`. The sequences are in their order before packing.
    Raises OnefoldValueError for a total length that is too small.

    >>> import onefold as flow
    >>> rnn = flow.nn.utils.rnn
    >>> packed = rnn.pack_sequence([flow.tensor([1, 2, 3]), flow.tensor([4])])
    >>> rnn.pad_packed_sequence(packed, batch_first=True)[0].tolist()
    [[1, 2, 3], [4, 0, 0]]
    """
    sizes = known_vector(sequence.batch_sizes)
    longest = len(sizes)
    if total_length is not None and total_length < longest:
        raise OnefoldValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but "
            f"got total_length={total_length} and max sequence length being {longest}"
        )
    steps, batch = total_length or longest, int(sizes[0])
    starts = torch.cumsum(sizes, 0) - sizes
    if steps > longest:
        more = (0, steps - longest)
        sizes, starts = (torch.nn.functional.pad(each, more) for each in (sizes, starts))
    columns = torch.arange(batch)
    inside = columns < sizes[:, None]
    places = torch.where(inside, starts[:, None] + columns, 0)
    lengths = inside.sum(0)
    if sequence.unsorted_indices is not None:
        order = known_vector(sequence.unsorted_indices).cpu()
        inside, places, lengths = inside[:, order], places[:, order], lengths[order]
    if batch_first:
        inside, places = inside.t(), places.t()
    data = sequence.data
    found = index_select(data, 0, like_index(places.reshape(-1), data))
    found = reshape(found, (*places.shape, *data.shape[1:]))
    if not bool(inside.all()):
        mask = inside.reshape(*inside.shape, *[1] * (data.ndim - 1))
        found = where(like_index(mask, data), found, _element(padding_value, data.dtype))
    return found, _known(lengths)


def pad_sequence(
    sequences: Tensor | Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Pad tensors (L, *) to the largest L and stack them: (T, B, *), or (B, T, *).

    Raises OnefoldRuntimeError for what is no list of tensors, and for another `padding_side` than
    "left" and "right".

    >>> import onefold as flow
    >>> flow.nn.utils.rnn.pad_sequence([flow.ones(2), flow.ones(1)], batch_first=True).tolist()
    [[1.0, 1.0], [1.0, 0.0]]
    """
    if not isinstance(sequences, Iterable):
        raise OnefoldRuntimeError(
            "pad_sequence: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences)}"
        )
    if padding_side not in ("left", "right"):
        raise OnefoldRuntimeError(
            f"Expected padding_side to be one of left or right, but got {padding_side}."
        )
    given = list(sequences)
    if not given:
        raise OnefoldRuntimeError("received an empty list of sequences")
    longest = max(each.shape[0] for each in given)
    padded = []
    for each in given:
        more = longest - each.shape[0]
        widths = (0, more) if padding_side == "right" else (more, 0)
        lead = (0, 0) * (each.ndim - 1)
        value = _element(padding_value, each.dtype)
        padded.append(pad(each, (*lead, *widths), value=value) if more else each)
    return stack(padded, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False
) -> list[Tensor]:
    """The sequences of a padded batch (T, B, *), or (B, T, *) with `batch_first`, by their lengths.

    >>> import onefold as flow
    >>> [x.tolist() for x in flow.nn.utils.rnn.unpad_sequence(flow.ones(2, 2), flow.tensor([2, 1]))]
    [[1.0, 1.0], [1.0]]
    """
    known = known_values(lengths) if isinstance(lengths, Tensor) else tuple(lengths)
    dim = 0 if batch_first else 1
    if len(known) != padded_sequences.shape[dim]:
        raise OnefoldValueError(
            f"unpad_sequence: got {len(known)} lengths for {padded_sequences.shape[dim]} sequences"
        )
    return [
        narrow(select(padded_sequences, dim, index), 0, 0, length)
        for index, length in enumerate(known)
    ]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors (L, *) of several lengths, which decrease unless `enforce_sorted` is off.

    >>> import onefold as flow
    >>> flow.nn.utils.rnn.pack_sequence([flow.tensor([1, 2]), flow.tensor([3])]).data.tolist()
    [1, 3, 2]
    """
    lengths = [each.shape[0] for each in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The tensors (L, *) of a packed sequence, the inverse of `pack_sequence`."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
