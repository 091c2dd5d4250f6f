"""Mixed precision (`flow.amp`): autocast, for eager programs, and gradient scalers.

In an `nn.Graph`, `config.enable_amp` does what autocast does here.
"""

from .engine.autocast import autocast, custom_bwd, custom_fwd
from .optim.grad_scaler import GradScaler, StaticGradScaler

__all__ = ["GradScaler", "StaticGradScaler", "autocast", "custom_bwd", "custom_fwd"]
