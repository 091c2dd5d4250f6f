"""Mixed precision (`flow.amp`): autocast, for eager programs, and gradient scalers, for graphs.

In an `nn.Graph`, `config.enable_amp` does what autocast does here, and `set_grad_scaler` takes the
scaler that float16 needs. Eager programs use the scaler as torch's; in bfloat16 they need none.
"""

import sys

from .engine.autocast import autocast, custom_bwd, custom_fwd, is_autocast_available
from .optim.grad_scaler import GradScaler, StaticGradScaler

__all__ = [
    "GradScaler",
    "StaticGradScaler",
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "is_autocast_available",
]

__path__: list[str] = []  # compat/import_paths.py leads to what is below it

autocast_mode = grad_scaler = sys.modules[__name__]  # torch's modules of these names
