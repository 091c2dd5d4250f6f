"""Optimizers. Each update rule is in its own file; `optimizer` has what they share."""

from . import lr_scheduler as lr_scheduler
from .adam import Adam as Adam
from .adamw import AdamW as AdamW
from .clip import clip_gradients as clip_gradients
from .elementwise_rules import *  # noqa: F403 - it lists what it has
from .elementwise_rules import __all__ as _rules
from .lamb import LAMB as LAMB
from .lars import LARS as LARS
from .optimizer import Optimizer as Optimizer
from .rmsprop import RMSprop as RMSprop
from .sgd import SGD as SGD

__all__ = ["LAMB", "LARS", "SGD", "Adam", "AdamW", "Optimizer", "RMSprop", "lr_scheduler"]
__all__ += _rules
