"""Optimizers: each update rule in its own file, on what `optimizer` shares."""

from . import lr_scheduler as lr_scheduler
from .adamw import AdamW as AdamW
from .clip import clip_gradients as clip_gradients
from .optimizer import Optimizer as Optimizer
from .sgd import SGD as SGD

__all__ = ["SGD", "AdamW", "Optimizer", "lr_scheduler"]
