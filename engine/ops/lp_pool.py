"""Power-average pooling: the root of the sum of powers of each window."""

from __future__ import annotations

from math import inf, prod
from typing import NamedTuple

from ...kernels import lp_pool_ref as kernels
from ...kernels.lp_pool_ref import PowerSizes
from ..argument_types import Sizes
from ..dispatcher import ternary, unary
from ..generated import register_variant
from ..meta import Meta
from ..op import Gradients, Kernel, Local, Needs
from ..tensor import Tensor
from .arithmetic import mul
from .dims import squeeze
from .pool import Pool, as_planes, avg, avg_grad, check_gradient, max_pool, windows_of
from .result_shapes import FLOATS, pooled
from .unary import abs
from .where import or_zero


class PowerAttributes(NamedTuple):
    """The number of dims of a plane, and the power and the windows."""

    planes: int
    sizes: PowerSizes


class LpPool(Pool):
    """The root of the sum of powers of each window"""

    name = "lp_pool"
    attributes = PowerAttributes
    linear = ""
    kernel = staticmethod(kernels.lp_pool)
    saves_output = True

    def deduce(self, x: Meta, attrs: PowerAttributes) -> Meta | None:
        power, size, stride, ceil_mode = attrs.sizes
        if x.dtype not in FLOATS or type(power) is not float or not power:
            return None
        shape = pooled(x.shape, attrs.planes, size, stride, (0,) * attrs.planes, None, ceil_mode)
        return None if shape is None else x.like(shape)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Tensor, x: Tensor, attrs: PowerAttributes
    ) -> Gradients:
        return (_lp_grad(dy, x, y, *attrs),)


class LpPoolGrad(Pool):
    """The gradient of `LpPool`, from those of its result"""

    name = "lp_pool_grad"
    attributes = PowerAttributes
    like = (1,)
    kernel = staticmethod(kernels.lp_pool_grad)

    def bind(self, local: Local, attrs: PowerAttributes) -> Kernel:
        for index in (0, 2):
            check_gradient(local.input_shape(index), _LP, local.input_shape(1), attrs)
        return super().bind(local, attrs)

    def vjp(
        self, needs: Needs, dy: Tensor, y: Meta, g: Tensor, x: Tensor, root: Tensor,
        attrs: PowerAttributes,
    ) -> Gradients:  # fmt: skip
        planes, (power, size, stride, ceil_mode) = attrs
        windows = (size, stride, (0,) * planes, ceil_mode, True, None)
        # y = power of x * avg_grad(g * power of root). With power 1 those are constant.
        slope = or_zero(root, mul(root ** (1 - power), prod(size)))
        along = avg[planes](mul(dy, x ** (power - 1)), planes, windows)
        for_g = mul(slope, along)
        if power == 1:
            return for_g, None, None
        spread = avg_grad[planes](mul(g, slope), tuple(x.shape), planes, windows)
        for_x = needs[1] and mul(mul(dy, spread), mul(x ** (power - 2), power - 1))
        bend = or_zero(root, mul(root**-power, prod(size) * (1 - power)))
        return for_g, for_x, needs[2] and mul(mul(along, g), bend)


_LP = LpPool()
_lp = unary(_LP)
_lp_grad = ternary(LpPoolGrad())


def _lp_pool(
    dims: int,
    input: Tensor,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    if norm_type in (inf, -inf):
        sign = 1 if norm_type > 0 else -1
        largest = max_pool(dims, mul(abs(input), sign), kernel_size, stride, 0, 1, ceil_mode)
        assert isinstance(largest, Tensor)  # without indices
        return mul(largest, sign)
    x = as_planes(input, dims, f"lp_pool{dims}d")
    size, step, _ = windows_of(dims, kernel_size, stride, 0)
    y = _lp(x, max(dims, 2), (float(norm_type), size, step, ceil_mode))
    return squeeze(y, -2) if dims == 1 else y


_LP_POOL = """
    The root of the sum of powers (`norm_type`) of each window of the last {} dims, as in torch.

    With `norm_type` 1 it is the sum of each window, with infinity its largest magnitude.
    """
for _dims in (1, 2, 3):
    register_variant(f"lp_pool{_dims}d", _lp_pool, _dims, _LP_POOL.format(_dims))
