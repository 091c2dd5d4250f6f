"""Learning rate schedules: functions of the step, and the schedulers that apply them."""

from ...engine.boundaries import (
    wrap_constructors as _wrap_constructors,
    wrap_methods as _wrap_methods,
)
from .chained import ChainedScheduler as ChainedScheduler
from .cosine import (
    CosineAnnealingLR as CosineAnnealingLR,
    CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts,
    CosineDecayLR as CosineDecayLR,
)
from .cycles import CyclicLR as CyclicLR, OneCycleLR as OneCycleLR
from .decay import (
    ConstantLR as ConstantLR,
    ExponentialLR as ExponentialLR,
    LinearLR as LinearLR,
    MultiStepLR as MultiStepLR,
    PolynomialLR as PolynomialLR,
    StepLR as StepLR,
)
from .lambda_lr import LambdaLR as LambdaLR, MultiplicativeLR as MultiplicativeLR
from .plateau import ReduceLROnPlateau as ReduceLROnPlateau
from .scheduler import LRScheduler as LRScheduler, Schedule as Schedule, Scheduler as _Scheduler
from .sequential import SequentialLR as SequentialLR
from .warmup_lr import WarmupLR as WarmupLR

_wrap_constructors(list(globals().values()), _Scheduler)
for _kind in (LRScheduler, ReduceLROnPlateau, ChainedScheduler, SequentialLR):
    _wrap_methods(_kind)

WarmUpLR = WarmupLR  # OneFlow has both spellings
_LRScheduler = LRScheduler  # torch's name of old

__all__ = """
ChainedScheduler ConstantLR CosineAnnealingLR CosineAnnealingWarmRestarts CosineDecayLR
CyclicLR ExponentialLR LRScheduler LambdaLR LinearLR MultiStepLR MultiplicativeLR OneCycleLR
PolynomialLR ReduceLROnPlateau Schedule SequentialLR StepLR WarmUpLR WarmupLR
""".split()
