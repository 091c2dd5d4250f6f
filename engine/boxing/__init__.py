"""Boxing: changing a tensor's placement or nd_sbp without changing its value."""

from .cost import axis_cost
from .plan import BoxingPlan, plan
from .run import run

__all__ = ["BoxingPlan", "axis_cost", "plan", "run"]
