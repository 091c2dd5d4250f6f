"""The text that the GPT example learns: the sources of Python's standard library, as bytes."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import numpy as np

import onefold as flow

VOCABULARY = 256
MAX_BYTES = 2_000_000


def load(folder: str | None = None) -> np.ndarray:
    """Bytes of the .py files of a folder (default: the standard library), sorted by name."""
    found = Path(folder or sysconfig.get_paths()["stdlib"])
    files = sorted(found.glob("*.py"))
    if not files:
        raise FileNotFoundError(f"{found} has no .py files; name another folder with --data")
    text = b"\n".join(file.read_bytes() for file in files)[:MAX_BYTES]
    return np.frombuffer(text, dtype=np.uint8).astype(np.int64)


def batch(text: np.ndarray, size: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Random pieces of the text (size, length), and the same one byte later.

    The places come from the default generator, so that every process draws the same.
    """
    starts = flow.randint(0, len(text) - length - 1, (size,)).numpy()
    rows = starts[:, None] + np.arange(length + 1)
    pieces = text[rows]
    return pieces[:, :-1], pieces[:, 1:]
