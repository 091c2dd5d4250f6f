"""The text of train_gpt.py: files of a folder as tokens, and the windows that batches are made of.

The tokens are made once and kept in the run's folder. So a run that is resumed sees what it saw
before, though the text may have changed, and processes map the file instead of reading it.
"""

from __future__ import annotations

import codecs
import json
import os
import random
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path

import byte_pairs
import numpy as np
import torch
from torch.utils.data import Dataset
from train_gpt_options import UsageError

import onefold as flow

LEARN_FROM = 1_000_000  # bytes, from which byte pairs are learned
SKIPPED = {"__pycache__", "node_modules", "site-packages"}


@dataclass(frozen=True)
class Source:
    """From what the tokens of a run are made."""

    folder: str
    files: str  # a pattern of their names
    max_mb: float
    vocabulary: int
    validation: float  # the share of the tokens that is not trained on


@dataclass(frozen=True)
class Text:
    """Tokens for training and validation, and the byte pairs that they stand for."""

    train: np.ndarray
    validation: np.ndarray
    pairs: list[byte_pairs.Pair]

    @property
    def vocabulary(self) -> int:
        return byte_pairs.BYTES + len(self.pairs)

    @property
    def digest(self) -> int:
        """A number for the tokens and what they mean."""
        pairs = zlib.crc32(json.dumps(self.pairs).encode())
        return zlib.crc32(self.validation, zlib.crc32(self.train, pairs))

    def windows(self, length: int, batch: int) -> tuple[Windows, Windows]:
        """Those to train on, a batch at least, and those to validate on."""
        found = Windows(self.train, length), Windows(self.validation, length)
        for name, windows, least in zip(("training", "validation"), found, (batch, 1), strict=True):
            if len(windows) < least:
                raise UsageError(
                    f"the text for {name} has {len(windows)} windows of --length {length}, but "
                    f"needs {least}; give more text, or a smaller --length or --batch"
                )
        return found


class Windows(Dataset[torch.Tensor]):
    """Pieces of `length` tokens, one after the other, each with the token that follows it."""

    def __init__(self, tokens: np.ndarray, length: int) -> None:
        self.tokens = tokens
        self.length = length

    def __len__(self) -> int:
        return max(len(self.tokens) - 1, 0) // self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        start = index * self.length
        return torch.from_numpy(self.tokens[start : start + self.length + 1].astype(np.int64))


def prepare(source: Source, folder: Path) -> Text:
    """The text of a run, made by rank 0 unless it is in `folder` already.

    Every process calls this. Raises UsageError where there is no text, and where the folder has
    the text of another source.
    """
    problem = None
    if flow.env.get_rank() == 0 and not (folder / "source.json").exists():
        try:
            make(source, folder)
        except UsageError as error:
            problem = error
    flow.comm.barrier()
    if not (folder / "source.json").exists():
        raise problem or UsageError(f"rank 0 made no {folder}, or not where this rank sees it")
    kept = json.loads((folder / "source.json").read_text())
    for name, value in asdict(source).items():
        if kept[name] != value:
            raise UsageError(
                f"{folder} holds the text of a run with {name} {kept[name]!r}, not {value!r}; "
                "name another folder with --out, or give the options of that run"
            )
    tokens = np.load(folder / "tokens.npy", mmap_mode="r")
    pairs = [(first, second) for first, second in kept["pairs"]]
    cut = round(len(tokens) * (1 - source.validation))
    return Text(tokens[:cut], tokens[cut:], pairs)


def make(source: Source, folder: Path) -> None:
    """Write the tokens, and then what they were made of."""
    begun = time.perf_counter()
    text = read(Path(source.folder), source.files, round(source.max_mb * 1e6))
    pairs = byte_pairs.learn(excerpt(text, LEARN_FROM), source.vocabulary)
    tokens = byte_pairs.encode(text, pairs).astype(np.uint16)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "tokens.npy", tokens)
    partial = folder / "source.json.partial"
    partial.write_text(json.dumps({**asdict(source), "pairs": pairs}))
    os.replace(partial, folder / "source.json")  # so that it is whole or not there
    print(
        f"{len(text) / 1e6:.2f} MB of text below {source.folder} are {len(tokens) / 1e6:.2f} "
        f"million tokens of {byte_pairs.BYTES + len(pairs)} kinds "
        f"({time.perf_counter() - begun:.0f} s)"
    )


def excerpt(text: bytes, size: int, piece: int = 4096) -> bytes:
    """About `size` bytes in pieces from all over a text."""
    stride = piece * max(len(text) // size, 1)
    return b"".join(text[start : start + piece] for start in range(0, len(text), stride))


def read(folder: Path, pattern: str, limit: int) -> bytes:
    """At most `limit` bytes of the text files below a folder, in an order drawn once for all.

    So validation, which gets the last tokens, has files of all kinds. Raises UsageError where
    there is no folder or no text.
    """
    if not folder.is_dir():
        raise UsageError(f"--data: there is no folder {str(folder)!r}")
    files = sorted(file for file in files_below(folder) if fnmatch(file.name, pattern))
    random.Random(0).shuffle(files)
    found = bytearray()
    for file in files:
        if text := text_of(file, limit - len(found)):
            found += text + bytes([byte_pairs.END])
        if len(found) >= limit:
            break
    if not found:
        raise UsageError(
            f"--data: {str(folder)!r} has {len(files)} files {pattern!r}, and none of them can be "
            "read as text in UTF-8; name a folder with text, or another pattern with --files"
        )
    return bytes(found)


def files_below(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED and name[0] != "."]
        files = (Path(where, name) for name in names if name[0] != ".")
        yield from (file for file in files if file.is_file())  # no pipes, no broken links


def text_of(file: Path, limit: int) -> bytes:
    """At most `limit` bytes of a file; none where it cannot be read or is no text in UTF-8."""
    try:
        with file.open("rb") as opened:
            data = opened.read(limit)
        # The limit may part the bytes of the last character.
        codecs.getincrementaldecoder("utf-8")().decode(data, final=len(data) < limit)
    except (OSError, UnicodeDecodeError):
        return b""
    return b"" if byte_pairs.END in data else data
