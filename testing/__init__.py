"""Tools to test ops and programs: samples, layouts by hand, strategies and brute-force checks.

Two of them are the ones to start with. `assert_sbp_equivalent(fn, *inputs)` calls any function on
one device and under many layouts and compares values and gradients. `assert_same_training(make,
strategies)` trains a model on one device and under each strategy and compares every step.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from .close_values import assert_close as assert_close
from .equivalence import assert_sbp_equivalent as assert_sbp_equivalent
from .make_tensor import make_tensor as make_tensor
from .same_training import assert_same_training as assert_same_training
from .samples import Bo as Bo, I as I, Sample as Sample, T as T

if _TYPE_CHECKING:
    from .gpu_driver import GpuDriver as GpuDriver
    from .random_programs import (
        Program as Program,
        check_program as check_program,
        draw_programs as draw_programs,
        programs as programs,
    )
    from .strategies import (
        meshes as meshes,
        nd_sbps as nd_sbps,
        placements as placements,
        shapes as shapes,
    )

# Imported when they are first asked for, as they need hypothesis or Triton.
_ON_DEMAND = {
    "GpuDriver": "gpu_driver",
    **dict.fromkeys(("Program", "check_program", "draw_programs", "programs"), "random_programs"),
    **dict.fromkeys(("meshes", "nd_sbps", "placements", "shapes"), "strategies"),
}


def __getattr__(name: str) -> object:
    if name in _ON_DEMAND:
        return getattr(_import_module(f"{__name__}.{_ON_DEMAND[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
