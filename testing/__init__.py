"""Tools to test ops and programs: samples, layouts by hand, strategies and brute-force checks.

`assert_sbp_equivalent(fn, *inputs)` is the one to start with: it calls any function on one device
and under many layouts and compares values and gradients.
"""

from .equivalence import assert_sbp_equivalent
from .samples import Bo, I, Sample, T
from .strategies import meshes, nd_sbps, placements, shapes

__all__ = [
    "Bo",
    "I",
    "Sample",
    "T",
    "assert_sbp_equivalent",
    "meshes",
    "nd_sbps",
    "placements",
    "shapes",
]
