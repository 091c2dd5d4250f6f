"""The training steps of benchmarks/whole_steps.py, at full size, for the driver without a GPU."""

import sys

from source_tree import REPO

sys.path.insert(0, str(REPO / "benchmarks"))

import whole_steps

BATCHES = {"gpt2": (1, 8, 64), "llama": (1, 2, 16)}  # the last is the largest of the benchmark
# Neighbors share few forms, which processes that start together would compile more than once.
STEPS = [
    (name, batches[size], candidate)
    for candidate in whole_steps.OWN
    for size in range(3)
    for name, batches in BATCHES.items()
]


def whole_step(name, batch, candidate):
    """A function that does a training step, with all layers of the model."""
    whole_steps.DEVICE = "cpu"  # where the driver expects tensors, also where there is a GPU
    return whole_steps.onefold_step(
        name, whole_steps.MODELS[name][1], batch, candidate, drawn=False
    )
