"""Reads a checkpoint: each rank reads the slices that it needs, and checks them before use."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from ..distributed.json_values import Json
from ..engine.meta import Box, Meta
from ..engine.sbp import broadcast, without_partial
from ..engine.tensor import Tensor, from_shards
from ..errors import CheckpointError
from .live_state import Target
from .manifest import Manifest, StoredTensor
from .pieces import needed, within
from .safetensors_format import Header, bytes_of, from_stored, opened, read_box, read_header
from .value_tree import read_dtype, restored

TargetOf = Callable[[str], Target | None]


class Reader:
    """The tensors of a checkpoint's files, in any layout."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._stack = ExitStack()
        self._files: dict[str, tuple[int, Header]] = {}

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _file(self, name: str) -> tuple[int, Header]:
        if name not in self._files:
            path = self.folder / name
            file = self._stack.enter_context(opened(path))
            self._files[name] = file, read_header(file, path)
        return self._files[name]

    def section(self, section: str, target_of: TargetOf) -> Any:
        """The value of a section, its tensors laid out as `target_of` says; else they are local.

        Raises CheckpointError for a tensor that is damaged, or does not fit its target.
        """
        kept = self.manifest.sections[section]
        made: dict[str, Tensor] = {}

        def tensor(entry: Json) -> object:
            name = entry["name"]
            if name not in made:
                made[name] = self._tensor(section, kept.tensors[name], entry, target_of(name))
            if entry["$"] == "tensor":
                return made[name]
            value = made[name].shards[0]
            return value if entry["$"] == "torch" else value.numpy()

        return restored(kept.tree, tensor)

    def _tensor(
        self, section: str, stored: StoredTensor, entry: Json, target: Target | None
    ) -> Tensor:
        name = entry["name"]
        dtype = read_dtype(entry.get("dtype", stored.dtype))
        paired = dtype.is_complex and not read_dtype(stored.dtype).is_complex
        shape = tuple(stored.shape[:-1] if paired else stored.shape)
        if target is not None and target.exact:
            check_fits(f"{self.folder / stored.file}: {name!r}", dtype, shape, target.meta)
        meta = laid_out(shape, dtype, None if target is None else target.meta)
        extra = (2,) if paired else ()

        def read(boxes: list[Box]) -> list[torch.Tensor]:
            whole = [((*o, *(0 for _ in extra)), (*n, *extra)) for o, n in boxes]
            return [from_stored(part, dtype) for part in self.boxes(section, name, whole)]

        return assembled(meta, read)

    def boxes(self, section: str, name: str, wanted: list[Box]) -> list[torch.Tensor]:
        """Boxes of a tensor as it is stored, from the pieces that hold parts of them."""
        stored = self.manifest.sections[section].tensors[name]
        dtype = read_dtype(stored.dtype)
        parts = [torch.empty(size, dtype=dtype) for _, size in wanted]
        pieces = stored.boxes()
        path = self.folder / stored.file
        for number, copies in needed(pieces, wanted):
            file, header = self._file(stored.file)
            value = read_box(file, header, name, pieces[number], path)
            if zlib.crc32(bytes_of(value)) != stored.pieces[number][2]:
                raise CheckpointError(f"{path} is damaged: the checksum of {name!r} is wrong")
            for target, shared in copies:
                part = parts[target][within(shared, wanted[target])]
                part.copy_(value[within(shared, pieces[number])])
        return parts

    def check_all(self) -> None:
        """Read every tensor, and compare its checksums."""
        for section, kept in self.manifest.sections.items():
            for name, stored in kept.tensors.items():
                for box in stored.boxes():
                    self.boxes(section, name, [box])


def check_fits(what: str, dtype: torch.dtype, shape: tuple[int, ...], target: Meta) -> None:
    """Raise CheckpointError unless a stored tensor has the shape of the target, and its dtype.

    A dtype that holds all values of the stored one is allowed, too.
    """
    if shape != tuple(target.shape):
        raise CheckpointError(f"{what} has shape {shape}, but its target has {tuple(target.shape)}")
    if dtype != target.dtype and not _holds(target.dtype, dtype):
        raise CheckpointError(
            f"{what} is {dtype}, but its target is {target.dtype}, which does not hold every value "
            "of it; convert one of them"
        )


def _holds(wide: torch.dtype, narrow: torch.dtype) -> bool:
    """Whether one dtype has every value of another of its kind."""
    kinds = [(dtype.is_floating_point, dtype.is_complex) for dtype in (wide, narrow)]
    try:
        return kinds[0] == kinds[1] and torch.promote_types(wide, narrow) == wide
    except RuntimeError:  # torch promotes some dtypes to none
        return False


def laid_out(shape: tuple[int, ...], dtype: torch.dtype, target: Meta | None) -> Meta:
    """The meta in which a stored tensor is read for a target; None: on the cpu."""
    if target is None or target.placement is None:
        device = torch.device("cpu") if target is None else target.device
        return Meta.of(shape, dtype, device=device)
    nd_sbp = without_partial(target.nd_sbp)
    if shape != tuple(target.shape):
        nd_sbp = (broadcast,) * len(nd_sbp)
    return Meta.of(shape, dtype, target.placement, nd_sbp)


def _boxes(meta: Meta) -> list[tuple[Box, torch.device]]:
    """The boxes that this process holds, and where."""
    if meta.placement is None:
        assert meta.device is not None
        return [(((0,) * meta.ndim, tuple(meta.shape)), meta.device)]
    ranks = meta.placement.flat_ranks
    owned = meta.placement.owned
    return [(meta.box(p), meta.placement.device(ranks[p])) for p in owned]


def assembled(meta: Meta, read: Callable[[list[Box]], list[torch.Tensor]]) -> Tensor:
    """The tensor of this meta, from the boxes that this process holds of it."""
    keys = _boxes(meta)
    unique = list(dict.fromkeys(keys))
    values = read([box for box, _ in unique])
    parts = {key: value.to(key[1]) for key, value in zip(unique, values, strict=True)}
    made = from_shards(tuple([parts[key] for key in keys]), meta)
    made.shared = True
    return made
