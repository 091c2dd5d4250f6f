"""Optimizers. Each update rule is in its own file; `optimizer` has what they share."""

from ..engine.boundaries import wrap_constructors as _wrap_constructors
from . import lr_scheduler as lr_scheduler
from .adafactor import Adafactor as Adafactor
from .adagrad import Adagrad as Adagrad
from .adam import Adam as Adam
from .adamax import Adamax as Adamax
from .adamw import AdamW as AdamW
from .asgd import ASGD as ASGD
from .clip import clip_gradients as clip_gradients
from .elementwise_rules import *  # noqa: F403 - it lists what it has
from .elementwise_rules import __all__ as _rules
from .lamb import LAMB as LAMB
from .lars import LARS as LARS
from .lbfgs import LBFGS as LBFGS
from .muon import Muon as Muon
from .nadam import NAdam as NAdam
from .optimizer import Optimizer as Optimizer
from .radam import RAdam as RAdam
from .rmsprop import RMSprop as RMSprop
from .rprop import Rprop as Rprop
from .sgd import SGD as SGD
from .sparse_adam import SparseAdam as SparseAdam

__all__ = """
ASGD Adafactor Adagrad Adam AdamW Adamax LAMB LARS LBFGS Muon NAdam Optimizer RAdam RMSprop Rprop
SGD SparseAdam lr_scheduler
""".split()
__all__ += _rules

_wrap_constructors(list(globals().values()), Optimizer)
