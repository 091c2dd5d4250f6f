"""Constraints by torch's names: the sets in which parameters and values of distributions lie.

>>> import onefold as flow
>>> positive.check(flow.tensor([-1.0, 2.0]))
tensor([False,  True])
>>> interval(0.0, 2.0)
Interval(lower_bound=0.0, upper_bound=2.0)
"""

from .event_constraints import (
    MixtureSameFamilyConstraint as MixtureSameFamilyConstraint,
    cat as cat,
    corr_cholesky as corr_cholesky,
    independent as independent,
    lower_cholesky as lower_cholesky,
    lower_triangular as lower_triangular,
    multinomial as multinomial,
    one_hot as one_hot,
    positive_definite as positive_definite,
    positive_semidefinite as positive_semidefinite,
    real_vector as real_vector,
    simplex as simplex,
    square as square,
    stack as stack,
    symmetric as symmetric,
)
from .scalar_constraints import (
    Constraint as Constraint,
    boolean as boolean,
    dependent as dependent,
    dependent_property as dependent_property,
    greater_than as greater_than,
    greater_than_eq as greater_than_eq,
    half_open_interval as half_open_interval,
    integer_interval as integer_interval,
    interval as interval,
    is_dependent as is_dependent,
    less_than as less_than,
    nonnegative as nonnegative,
    nonnegative_integer as nonnegative_integer,
    positive as positive,
    positive_integer as positive_integer,
    real as real,
    unit_interval as unit_interval,
)
