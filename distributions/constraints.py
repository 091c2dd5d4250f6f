"""Constraints by torch's names: the sets in which parameters and values of distributions lie.

>>> import onefold as flow
>>> positive.check(flow.tensor([-1.0, 2.0]))
tensor([False,  True])
>>> interval(0.0, 2.0)
Interval(lower_bound=0.0, upper_bound=2.0)
"""

from .event_constraints import (
    MixtureSameFamilyConstraint,
    cat,
    corr_cholesky,
    independent,
    lower_cholesky,
    lower_triangular,
    multinomial,
    one_hot,
    positive_definite,
    positive_semidefinite,
    real_vector,
    simplex,
    square,
    stack,
    symmetric,
)
from .scalar_constraints import (
    Constraint,
    boolean,
    dependent,
    dependent_property,
    greater_than,
    greater_than_eq,
    half_open_interval,
    integer_interval,
    interval,
    is_dependent,
    less_than,
    nonnegative,
    nonnegative_integer,
    positive,
    positive_integer,
    real,
    unit_interval,
)

__all__ = [
    "Constraint",
    "MixtureSameFamilyConstraint",
    "boolean",
    "cat",
    "corr_cholesky",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "positive_semidefinite",
    "real",
    "real_vector",
    "simplex",
    "square",
    "stack",
    "symmetric",
    "unit_interval",
]
