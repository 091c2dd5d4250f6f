"""Functions of libdevice for Triton's interpreter, by the symbols that CUDA's library has."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

Function = Callable[..., np.ndarray]


def _by_torch(function: Callable[..., torch.Tensor]) -> Function:
    """In float64, where torch is more exact than libdevice in float32."""
    return lambda *args: function(*(torch.from_numpy(np.array(x)).double() for x in args)).numpy()


_REAL: dict[str, Function] = {
    **{
        name: _by_torch(getattr(torch, name))
        for name in """acos acosh asin asinh atan atanh atan2 cos cosh erf erfc erfinv exp exp2
            expm1 hypot lgamma log log10 log1p log2 nextafter pow sin sinh sqrt tan tanh trunc
            floor ceil abs fmod copysign""".split()
    },
    "cbrt": np.cbrt,
    "erfcx": _by_torch(torch.special.erfcx),
    "exp10": lambda x: 10.0 ** x.astype(np.float64),
    "fdim": lambda x, y: np.where(x > y, x - y, np.where(x <= y, 0.0, x + y)),
    "fma": lambda x, y, z: x.astype(np.float64) * y + z,
    "ldexp": np.ldexp,
    "nearbyint": np.rint,
    "normcdf": _by_torch(torch.special.ndtr),
    "powi": _by_torch(torch.pow),
    "rcbrt": lambda x: 1 / np.cbrt(x.astype(np.float64)),
    "remainder": lambda x, y: x - np.rint(x / y) * y,
    "rint": np.rint,
    "round": lambda x: np.trunc(x + np.copysign(np.nextafter(0.5, 0, dtype=x.dtype), x)),
    "rsqrt": lambda x: 1 / np.sqrt(x.astype(np.float64)),
    "tgamma": lambda x: np.exp(_by_torch(torch.lgamma)(x)) * _gamma_sign(x),
}
_REAL["nextafter"] = np.nextafter  # in the precision of its arguments
_REAL["isinf"] = _REAL["isinff"] = np.isinf


def _gamma_sign(x: np.ndarray) -> np.ndarray:
    return np.where((x < 0) & (np.floor(x) % 2 != 0), -1.0, 1.0)


SYMBOLS: dict[str, Function] = {
    **{f"__nv_{name}": function for name, function in _REAL.items()},
    **{f"__nv_{name}f": function for name, function in _REAL.items()},
    **{
        f"__nv_fast_{name}f": _REAL[name]
        for name in "cos exp exp10 log log10 log2 pow sin tan".split()
    },
    "__nv_fast_tanhf": _REAL["tanh"],
    "__nv_fast_fdividef": np.divide,
    "__nv_fabsf": np.abs,
    "__nv_fabs": np.abs,
    **{f"__nv_{name}": np.isnan for name in ("isnanf", "isnand")},
    **{f"__nv_{name}": np.isinf for name in ("isinff", "isinfd")},
    **{f"__nv_{name}": np.isfinite for name in ("finitef", "isfinited")},
    **{f"__nv_{name}": np.signbit for name in ("signbitf", "signbitd")},
    **{f"__nv_{name}_rn": np.divide for name in ("fdiv", "ddiv")},
    **{f"__nv_{name}_rn": np.sqrt for name in ("fsqrt", "dsqrt")},
    "__nv_llrintf": np.rint,
    "__nv_llrint": np.rint,
}
