"""Power-average pooling over planes, the last two or three dims, and its gradient."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TypeAlias

from torch import Tensor
from torch.nn import functional

from .pool_ref import Ints, avg_pool_grad

# norm_type, kernel_size, stride, ceil_mode
PowerSizes: TypeAlias = tuple[float, Ints, Ints, bool]

_LP_POOL: dict[int, Callable[..., Tensor]] = {2: functional.lp_pool2d, 3: functional.lp_pool3d}


def lp_pool(x: Tensor, planes: int, sizes: PowerSizes) -> Tensor:
    """The root of the sum of powers of each window. What `ceil_mode` cuts counts as the mean."""
    y: Tensor = _LP_POOL[planes](_wide(x), *sizes)
    return y.to(x.dtype)


def lp_pool_grad(dy: Tensor, x: Tensor, y: Tensor, planes: int, sizes: PowerSizes) -> Tensor:
    """The gradient for x of `lp_pool`, whose result y is; 0 where y is 0."""
    power, size, stride, ceil_mode = sizes
    wide = _wide(y)
    slope = wide.pow(1 - power).masked_fill(wide == 0, 0) * _wide(dy) * prod(size)
    windows = (size, stride, (0,) * planes, ceil_mode, True, None)
    spread = avg_pool_grad(slope, tuple(x.shape), planes, windows)
    return (spread * _wide(x).pow(power - 1)).to(x.dtype)


def _wide(x: Tensor) -> Tensor:
    """In a dtype in which powers keep their accuracy."""
    return x.float() if x.is_floating_point() and x.element_size() < 4 else x
