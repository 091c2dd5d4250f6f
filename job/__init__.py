"""Job: functions traced once and called with numpy arrays (`import onefold.job as flow`).

Read in this order: `define.py` is the decorator, `job.py` traces a function and calls its graph,
`blob.py` has what ops work on, `placeholder.py` and `results.py` what goes in and out,
`variables.py`, `layers.py` and `job_optimizer.py` what a network needs, `session.py` what all jobs
of a program share.
"""

from __future__ import annotations

from torch import bool, double, float, float16, float32, float64, half, int8, int32, int64, uint8

from . import (
    advanced,
    data,
    distribute,
    job_checkpoint as checkpoint,
    job_config as config,
    job_env as env,
    job_optimizer as optimizer,
    layers,
    losses,
    math,
    nn,
    regularizers,
    scope,
    train,
    typing,
)
from .blob import Blob
from .define import global_function
from .function_config import FunctionConfig, function_config
from .ignored import IgnoredSettingWarning
from .initializers import (
    constant_initializer,
    glorot_normal_initializer,
    glorot_uniform_initializer,
    kaiming_initializer,
    ones_initializer,
    random_normal_initializer,
    random_uniform_initializer,
    truncated_normal,
    truncated_normal_initializer,
    variance_scaling_initializer,
    xavier_normal_initializer,
    xavier_uniform_initializer,
    zeros_initializer,
)
from .scope import placement as device_prior_placement, placement as fixed_placement
from .session import clear_default_session
from .shaping import *  # noqa: F403
from .train import load_variables
from .typing import FixedTensorDef, MirroredTensorDef, MirroredTensorListDef
from .unpack_pack import pack, unpack
from .variables import get_variable
from .watching import watch, watch_diff
