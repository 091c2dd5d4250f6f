"""Tools to test ops and programs: samples, layouts by hand, strategies and brute-force checks.

`assert_sbp_equivalent(fn, *inputs)` is the one to start with: it calls any function on one device
and under many layouts and compares values and gradients.
"""

from .equivalence import assert_sbp_equivalent as assert_sbp_equivalent
from .programs import (
    Program as Program,
    check_program as check_program,
    draw_programs as draw_programs,
    programs as programs,
)
from .samples import Bo as Bo, I as I, Sample as Sample, T as T
from .strategies import (
    meshes as meshes,
    nd_sbps as nd_sbps,
    placements as placements,
    shapes as shapes,
)
