"""The manifest of a checkpoint: its values, its files, and a checksum of every piece."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..distributed.json_values import Json, to_text
from ..engine.meta import Box
from ..errors import CheckpointError, OnefoldError
from .safetensors_format import Header, opened, read_at, read_header

FILE = "manifest.json"
_FORMAT = "onefold.checkpoint"
_VERSION = 1
_STEP = re.compile(r"step-(\d+)")


@dataclass
class StoredTensor:
    """A stored tensor: where it is, and its pieces with their checksums."""

    file: str
    dtype: str
    shape: list[int]
    pieces: list[list[Any]]  # [offset, size, crc32]

    def boxes(self) -> list[Box]:
        return [(tuple(offset), tuple(size)) for offset, size, _ in self.pieces]


@dataclass
class Section:
    """A value of the saved state: as a tree, and its tensors by name."""

    tree: Json
    tensors: dict[str, StoredTensor] = field(default_factory=dict)


@dataclass
class StoredFile:
    """The size of a file, and the checksum of its header."""

    size: int
    header: int


@dataclass
class Manifest:
    """All that a checkpoint consists of."""

    step: int
    sections: dict[str, Section] = field(default_factory=dict)
    files: dict[str, StoredFile] = field(default_factory=dict)
    indexes: dict[str, int] = field(default_factory=dict)  # the checksums of index files

    def text(self) -> str:
        """What the file holds: the content, and its checksum."""
        content = {"format": _FORMAT, "version": _VERSION, **asdict(self)}
        text = to_text(content)
        return f'{{"content":{text},\n"sha256":"{sha256(text.encode()).hexdigest()}"}}\n'


def index_text(tensors: Mapping[str, StoredTensor], size: int) -> str:
    """An index of Hugging Face's sharded format."""
    files = {name: tensors[name].file for name in sorted(tensors)}
    return json.dumps({"metadata": {"total_size": size}, "weight_map": files}, indent=2) + "\n"


def index_name(section: str) -> str:
    """The name of a section's index."""
    return f"{section}.safetensors.index.json"


def step_folder(root: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return root / f"step-{step}"


def read_manifest(folder: Path) -> Manifest:
    """The manifest in a folder. Raises CheckpointError where there is none, or a damaged one."""
    path = folder / FILE
    if not path.exists():
        raise CheckpointError(
            f"{folder} is not a complete checkpoint: it has no {FILE}, which is written last"
        )
    with opened(path) as file:
        data = bytes(read_at(file, 0, path.stat().st_size, path))
    try:
        found = json.loads(data)
        content = found["content"]
        if found["sha256"] != sha256(to_text(content).encode()).hexdigest():
            raise CheckpointError(f"{path} is damaged: its checksum is wrong")
        if content.pop("format") != _FORMAT or content.pop("version") != _VERSION:
            raise CheckpointError(f"{path} was written by another version of onefold")
        return Manifest(
            content["step"],
            {name: _section(section) for name, section in content["sections"].items()},
            {name: StoredFile(**stored) for name, stored in content["files"].items()},
            content["indexes"],
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, OnefoldError):
            raise
        raise CheckpointError(f"{path} is damaged: {error}") from error


def _section(content: Any) -> Section:
    tensors = {name: StoredTensor(**stored) for name, stored in content["tensors"].items()}
    return Section(content["tree"], tensors)


def check_files(folder: Path, manifest: Manifest, sections: Iterator[str] | list[str]) -> None:
    """Check that the files of these sections exist, are complete, and match the manifest.

    Reads their headers and indexes. Raises CheckpointError, which names the file and a tensor.
    """
    for section in sections:
        tensors = manifest.sections[section].tensors
        index = index_name(section)
        if index in manifest.indexes:
            _check_index(folder / index, manifest.indexes[index], tensors)
        by_file: dict[str, dict[str, StoredTensor]] = {}
        for name, stored in tensors.items():
            by_file.setdefault(stored.file, {})[name] = stored
        for file, held in by_file.items():
            _check_file(folder / file, manifest.files[file], held)


def _check_index(path: Path, checksum: int, tensors: Mapping[str, StoredTensor]) -> None:
    if not path.exists():
        raise CheckpointError(f"{path} is missing")
    with opened(path) as file:
        data = bytes(read_at(file, 0, path.stat().st_size, path))
    if zlib.crc32(data) == checksum:
        return
    try:
        found = json.loads(data)["weight_map"]
        wrong = [name for name in {**tensors, **found} if found.get(name) != _file(tensors, name)]
    except (ValueError, TypeError, KeyError):
        wrong = []
    about = f": it disagrees with the manifest on {sorted(wrong)[0]!r}" if wrong else ""
    raise CheckpointError(f"{path} is damaged, or of another checkpoint{about}")


def _file(tensors: Mapping[str, StoredTensor], name: str) -> str | None:
    return tensors[name].file if name in tensors else None


def _check_file(path: Path, stored: StoredFile, held: Mapping[str, StoredTensor]) -> None:
    some = f"it holds {', '.join(map(repr, list(held)[:3]))}" + (", ..." if len(held) > 3 else "")
    if not path.exists():
        raise CheckpointError(f"{path} is missing; {some}")
    try:
        with opened(path) as file:
            header = read_header(file, path)
            _check_entries(path, header, held)
            if zlib.crc32(read_at(file, 0, header.data, path)) != stored.header:
                raise CheckpointError(f"{path} is damaged: the checksum of its header is wrong")
    except CheckpointError as error:
        raise CheckpointError(f"{error}; {some}") from error


def _check_entries(path: Path, header: Header, held: Mapping[str, StoredTensor]) -> None:
    for name, stored in held.items():
        entry = header.entries.get(name)
        if entry is None:
            raise CheckpointError(
                f"{path} has no tensor {name!r}: it belongs to another checkpoint"
            )
        found = str(entry.dtype).removeprefix("torch."), list(entry.shape)
        if found != (stored.dtype, stored.shape):
            raise CheckpointError(
                f"{path}: {name!r} is {found[0]}{found[1]}, but the manifest says "
                f"{stored.dtype}{stored.shape}"
            )


def numbered(root: Path) -> dict[int, Path]:
    """The folders of steps in `root`, complete or not, the oldest first."""
    if not root.is_dir():
        return {}
    found = [(_STEP.fullmatch(path.name), path) for path in root.iterdir()]
    steps = {int(match[1]): path for match, path in found if match}
    return dict(sorted(steps.items()))


def is_complete(folder: Path) -> bool:
    """Whether there is a complete manifest, and every file that it names, with its size."""
    try:
        manifest = read_manifest(folder)
        sizes = [(folder / name).stat().st_size for name in manifest.files]
    except (CheckpointError, OSError):
        return False
    return sizes == [stored.size for stored in manifest.files.values()]
