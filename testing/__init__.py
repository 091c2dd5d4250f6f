"""Tools to test ops and programs: samples, layouts by hand, strategies and brute-force checks.

`assert_sbp_equivalent(fn, *inputs)` is the one to start with: it calls any function on one device
and under many layouts and compares values and gradients.
"""

from .equivalence import assert_sbp_equivalent
from .programs import Program, check_program, draw_programs, programs
from .samples import Bo, I, Sample, T
from .strategies import meshes, nd_sbps, placements, shapes

__all__ = [
    "Bo",
    "I",
    "Program",
    "Sample",
    "T",
    "assert_sbp_equivalent",
    "check_program",
    "draw_programs",
    "meshes",
    "nd_sbps",
    "placements",
    "programs",
    "shapes",
]
