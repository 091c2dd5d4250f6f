"""The safetensors format: the header of a file, and boxes of its tensors.

Unlike the safetensors library, this module reads and writes parts of a tensor in place, so several
processes can write one file. It does not map files into memory: a file that cannot be read raises
an error instead of killing the process. https://github.com/huggingface/safetensors has the format.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..distributed.wire_format import from_bytes, to_bytes
from ..engine.meta import Box
from ..errors import CheckpointError, OnefoldTypeError

_CODES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "F32": torch.float32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F64": torch.float64,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}
_NAMES = {dtype: code for code, dtype in _CODES.items()}
# What the format lacks is stored as pairs of real and imaginary parts.
_PAIRS = {torch.complex128: torch.float64, torch.complex32: torch.float16}

_MAX_HEADER = 100_000_000  # as in the library
_MAX_SPAN = 1 << 26  # bytes that are read at once, with what lies between the wanted ones


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor of a file: dtype, shape, and the offset of its first byte after the header."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Header:
    """The tensors of a file by name, its metadata, and where the data begins."""

    entries: Mapping[str, Entry]
    metadata: Mapping[str, str]
    data: int  # bytes before it

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self.data + sum(entry.nbytes for entry in self.entries.values())


def stored(dtype: torch.dtype, shape: Sequence[int]) -> tuple[torch.dtype, tuple[int, ...]]:
    """The dtype and shape that a tensor has in a file.

    Raises OnefoldTypeError for a dtype that the format does not have.
    """
    if dtype in _PAIRS:
        return _PAIRS[dtype], (*shape, 2)
    if dtype not in _NAMES:
        raise OnefoldTypeError(
            f"safetensors has no {dtype}; it has {', '.join(sorted(map(str, _NAMES)))}. Convert "
            "the tensor first"
        )
    return dtype, tuple(shape)


def as_stored(value: torch.Tensor) -> torch.Tensor:
    """The tensor on the CPU, with the dtype and shape that it has in a file."""
    value = value.detach().cpu()
    return torch.view_as_real(value.resolve_conj()) if value.dtype in _PAIRS else value


def from_stored(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The inverse of `as_stored`."""
    return torch.view_as_complex(value) if dtype in _PAIRS else value


def bytes_of(value: torch.Tensor) -> memoryview:
    """The elements of a tensor on the cpu, in row-major order."""
    return to_bytes(value).numpy().data


def make_header(
    tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], metadata: Mapping[str, str]
) -> tuple[Header, bytes]:
    """The header of a file with tensors of these dtypes and shapes, and its bytes.

    Wide dtypes come first, so that each tensor is aligned.
    """
    entries: dict[str, Entry] = {}
    start = 0
    for name in sorted(tensors, key=lambda name: (-tensors[name][0].itemsize, name)):
        entry = entries[name] = Entry(*tensors[name], start)
        start += entry.nbytes
    listed: dict[str, Any] = {"__metadata__": dict(metadata)}
    for name, entry in entries.items():
        listed[name] = {
            "dtype": _NAMES[entry.dtype],
            "shape": list(entry.shape),
            "data_offsets": [entry.start, entry.start + entry.nbytes],
        }
    text = json.dumps(listed, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    data = len(text).to_bytes(8, "little") + text
    return Header(entries, dict(metadata), len(data)), data


@contextmanager
def opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """The descriptor of an open file; raises CheckpointError for one that cannot be opened."""
    try:
        file = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError as error:
        raise CheckpointError(f"cannot open {path}: {error.strerror}") from error
    try:
        yield file
    finally:
        os.close(file)


def read_at(file: int, start: int, size: int, path: Path) -> bytearray:
    """`size` bytes of an open file. Raises CheckpointError where there are fewer."""
    data = bytearray(size)
    view, done = memoryview(data), 0
    try:
        while done < size:
            got = os.preadv(file, [view[done:]], start + done)
            if not got:
                raise CheckpointError(
                    f"{path} is truncated: it ends after {start + done} bytes, {start + size} are "
                    "needed"
                )
            done += got
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    return data


def read_header(file: int, path: Path) -> Header:
    """The header of an open file. Raises CheckpointError unless it is that of a whole file."""
    length = int.from_bytes(read_at(file, 0, 8, path), "little")
    if length > _MAX_HEADER:
        raise CheckpointError(
            f"{path} is not a safetensors file, or damaged: its header is too long"
        )
    data = read_at(file, 8, length, path)
    try:
        listed = json.loads(data)
        metadata = {str(k): str(v) for k, v in listed.pop("__metadata__", {}).items()}
        entries = {name: _entry(found) for name, found in listed.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(
            f"{path} is not a safetensors file, or damaged: its header cannot be read ({error})"
        ) from error
    header = Header(entries, metadata, 8 + length)
    at = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].nbytes)):
        if entry.start != at:
            raise CheckpointError(
                f"{path} is damaged: {name!r} is not where the tensor before ends"
            )
        at += entry.nbytes
    size = os.fstat(file).st_size
    if size != header.size:
        state = "truncated" if size < header.size else "damaged"
        raise CheckpointError(
            f"{path} is {state}: it has {size} bytes, its header needs {header.size}"
        )
    return header


def _entry(found: Any) -> Entry:
    start, end = found["data_offsets"]
    shape = tuple(found["shape"])
    if not all(type(number) is int and number >= 0 for number in (start, end, *shape)):
        raise ValueError("an offset or a size is not an integer >= 0")
    if found["dtype"] not in _CODES:
        raise ValueError(f"unknown dtype {found['dtype']!r}")
    entry = Entry(_CODES[found["dtype"]], shape, start)
    if start + entry.nbytes != end:
        raise ValueError("a tensor's bytes are not those of its shape")
    return entry


def runs(shape: Sequence[int], box: Box) -> Iterator[tuple[int, int]]:
    """The (first element, elements) that a box takes of a row-major tensor, in order.

    >>> list(runs((3, 4), ((1, 1), (2, 2))))
    [(5, 2), (9, 2)]
    >>> list(runs((3, 4), ((1, 0), (2, 4))))
    [(4, 8)]
    """
    offset, size = box
    if 0 in size:
        return
    dim = len(shape)
    length = stride = 1
    while dim and length == stride:  # the later dims are whole
        dim -= 1
        length *= size[dim]
        stride *= shape[dim]
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    first = sum(o * s for o, s in zip(offset, strides, strict=True))
    for outer in range(math.prod(size[:dim])):
        at = first
        for d in reversed(range(dim)):
            outer, index = divmod(outer, size[d])
            at += index * strides[d]
        yield at, length


def read_box(file: int, header: Header, name: str, box: Box, path: Path) -> torch.Tensor:
    """A box of a tensor of an open file."""
    entry = header.entries[name]
    base, width = header.data + entry.start, entry.dtype.itemsize
    if 0 in box[1]:
        return torch.empty(box[1], dtype=entry.dtype)
    parts = list(runs(entry.shape, box))
    first, end = parts[0][0], parts[-1][0] + parts[-1][1]
    if len(parts) == 1 or (end - first) * width <= _MAX_SPAN:
        data = read_at(file, base + first * width, (end - first) * width, path)
        flat = torch.frombuffer(data, dtype=torch.uint8).view(entry.dtype)
        strides = [math.prod(entry.shape[d + 1 :]) for d in range(len(entry.shape))]
        return flat.as_strided(box[1], strides).contiguous()
    made = bytearray()
    for at, length in parts:
        made += read_at(file, base + at * width, length * width, path)
    return from_bytes(torch.frombuffer(made, dtype=torch.uint8), box[1], entry.dtype)


def write_box(file: int, header: Header, name: str, box: Box, value: torch.Tensor) -> memoryview:
    """Write a box of a tensor into an open file; its bytes. Raises OSError."""
    entry = header.entries[name]
    base, width = header.data + entry.start, entry.dtype.itemsize
    data = bytes_of(value)
    done = 0
    for at, length in runs(entry.shape, box):
        write_at(file, base + at * width, data[done : done + length * width])
        done += length * width
    return data


def write_at(file: int, start: int, data: memoryview | bytes) -> None:
    """Write all of these bytes there. Raises OSError."""
    view, done = memoryview(data), 0
    while done < len(view):
        done += os.pwrite(file, view[done:], start + done)
