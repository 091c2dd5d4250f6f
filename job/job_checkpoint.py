"""Checkpoints of a program's variables: a folder, or numpy arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .train import CheckPoint, read_variables


def save(path: str | Path) -> None:
    """Write all variables, and what the optimizers keep, into the folder `path`."""
    CheckPoint().save(path)


def get(path: str | Path) -> dict[str, np.ndarray]:
    """The variables in a folder that `save` wrote, by name; `flow.load_variables` takes them."""
    return {name: value.numpy() for name, value in read_variables(path).items()}
