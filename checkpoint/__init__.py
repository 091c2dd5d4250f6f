"""Checkpoints: the state of a training run in files; and `checkpoint`, which recomputes.

`save`, `load`, `latest` and `verify` write and read folders. `checkpoint(function, *args)` is
torch's activation checkpointing and writes no files: it keeps the inputs of a function instead of
its activations, and computes the activations again in backward.
"""

from ..engine.checkpoint import checkpoint as checkpoint
from .background import Saving as Saving
from .training_state import latest as latest, load as load, save as save, verify as verify
from .weights import load_weights as load_weights, save_weights as save_weights
