"""Checkpoints in files, `save` and `load`; and `checkpoint`, which recomputes activations."""

from ..engine.checkpoint import checkpoint as checkpoint
