"""Learning rate schedules: functions of the step, and the schedulers that apply them."""

from .composite import ChainedScheduler as ChainedScheduler
from .composite import SequentialLR as SequentialLR
from .composite import WarmupLR as WarmupLR
from .cosine import CosineAnnealingLR as CosineAnnealingLR
from .cosine import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from .cosine import CosineDecayLR as CosineDecayLR
from .decay import ConstantLR as ConstantLR
from .decay import ExponentialLR as ExponentialLR
from .decay import LinearLR as LinearLR
from .decay import MultiStepLR as MultiStepLR
from .decay import PolynomialLR as PolynomialLR
from .decay import StepLR as StepLR
from .lambda_lr import LambdaLR as LambdaLR
from .lambda_lr import MultiplicativeLR as MultiplicativeLR
from .plateau import ReduceLROnPlateau as ReduceLROnPlateau
from .scheduler import LRScheduler as LRScheduler
from .scheduler import Schedule as Schedule

WarmUpLR = WarmupLR  # OneFlow has both spellings

__all__ = """
ChainedScheduler ConstantLR CosineAnnealingLR CosineAnnealingWarmRestarts CosineDecayLR
ExponentialLR LRScheduler LambdaLR LinearLR MultiStepLR MultiplicativeLR PolynomialLR
ReduceLROnPlateau Schedule SequentialLR StepLR WarmUpLR WarmupLR
""".split()
