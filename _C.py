"""The functions of OneFlow's `flow._C` that programs call, with its arguments.

A function that is not here is the public one of the same name, whose arguments are OneFlow's.
"Fused" names are kept for such programs: here they are written with the public ops, which graphs
fuse. New programs use the public ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

from .compat.functional_forms import FORMS
from .compat.functional_losses import LOSSES
from .compat.rotary_layouts import fused_apply_rotary_emb
from .engine.argument_errors import public_functions, with_argument_errors
from .engine.generator import Generator, default_generator
from .engine.names import find_name
from .engine.ops.data_movement import wrap
from .engine.tensor import Tensor, tensor_ops
from .errors import OnefoldValueError, ShapeError
from .nn import functional as F
from .nn.functional import gelu, log_softmax, relu, sigmoid, silu, softmax, tanh

__all__ = [
    "add",
    "bias_add",
    "dim_gather",
    "dropout",
    "fused_apply_rotary_emb",
    "fused_bias_add_dropout",
    "fused_bias_add_gelu",
    "fused_glu",
    "fused_matmul_bias",
    "fused_mlp",
    "fused_scale_mask_softmax",
    "fused_scale_mask_softmax_dropout",
    "fused_scale_tril",
    "fused_scale_tril_softmax_mask_scale",
    "gather",
    "gelu",
    "grouped_matmul",
    "grouped_matmul_bias",
    "layer_norm",
    "layer_norm_affine",
    "log_softmax",
    "matmul",
    "relu",
    "rms_norm",
    "sigmoid",
    "silu",
    "skip_layer_norm",
    "skip_rms_norm",
    "softmax",
    "tanh",
]

add = tensor_ops.add
dim_gather = tensor_ops.gather

# The activations of `fused_glu`.
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "sigmoid": sigmoid,
    "relu": relu,
    "gelu": gelu,
    "fast_gelu": lambda x: gelu(x, "tanh"),
    "silu": silu,
}


# Products.


def matmul(
    input: Tensor,
    other: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
) -> Tensor:
    """alpha * input @ other, of which the last two dims may be transposed first."""
    a = input.transpose(-1, -2) if transpose_a else input
    y = tensor_ops.matmul(a, other.transpose(-1, -2) if transpose_b else other)
    return y if alpha == 1.0 else y * alpha


def bias_add(x: Tensor, bias: Tensor, *, axis: int = 1) -> Tensor:
    """x + bias, a vector along the dim `axis`."""
    return x + _along(bias, x, axis)


def fused_matmul_bias(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x @ weight.T + bias."""
    return F.linear(x, weight, bias)


def fused_mlp(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], skip_final_activation: bool
) -> Tensor:
    """Linear layers with relu after each, but for the last if `skip_final_activation`.

    Raises OnefoldValueError unless there is a bias for each weight, and a weight.
    """
    if len(weights) != len(biases) or not weights:
        raise OnefoldValueError(
            f"fused_mlp needs as many biases as weights, and at least one, but got {len(weights)} "
            f"weights and {len(biases)} biases"
        )
    for number, (weight, bias) in enumerate(zip(weights, biases, strict=True), 1):
        x = F.linear(x, weight, bias)
        if number < len(weights) or not skip_final_activation:
            x = relu(x)
    return x


def fused_glu(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    v: Tensor | None = None,
    c: Tensor | None = None,
    activation: str = "none",
) -> Tensor:
    """(x @ w.T + b) * activation(x @ v.T + c); without `v`, w and b hold both, one after the other.

    Raises OnefoldValueError for an unknown activation.
    """
    if activation not in _ACTIVATIONS:
        raise OnefoldValueError(
            f"fused_glu: activation must be one of {sorted(_ACTIVATIONS)}, but got {activation!r}"
        )
    hidden = F.linear(x, w, b)
    if v is None:
        hidden, gate = tensor_ops.chunk(hidden, 2, -1)
    else:
        gate = F.linear(x, v, c)
    return hidden * _ACTIVATIONS[activation](gate)


def grouped_matmul(xs: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """x @ weight.T of each pair."""
    return [F.linear(x, weight) for x, weight in zip(xs, weights, strict=True)]


def grouped_matmul_bias(
    xs: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> list[Tensor]:
    """x @ weight.T + bias of each three."""
    return [F.linear(*given) for given in zip(xs, weights, biases, strict=True)]


# Softmax and dropout.


def dropout(
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    generator: Generator | None = None,
    *,
    addend: Tensor | None = None,
) -> Tensor:
    """Dropout, then `addend` is added."""
    _check_generator(generator)
    y = F.dropout(input, p, training)
    if addend is not None:
        y = y + addend
    return input.copy_(y) if inplace else y


def fused_bias_add_gelu(a: Tensor, b: Tensor, *, axis: int) -> Tensor:
    """gelu(a + b), with the vector b along the dim `axis`."""
    return gelu(bias_add(a, b, axis=axis))


def fused_bias_add_dropout(
    a: Tensor, b: Tensor, *, p: float = 0.5, axis: int, generator: Generator | None = None
) -> Tensor:
    """dropout(a + b), with the vector b along the dim `axis`."""
    return dropout(bias_add(a, b, axis=axis), p, generator=generator)


def fused_scale_mask_softmax(
    x: Tensor, mask: Tensor, *, fill_value: float = 0.0, scale: float = 1.0
) -> Tensor:
    """The softmax over the last dim of scale * x, with `fill_value` where the mask is False."""
    return softmax(tensor_ops.where(mask.bool(), x * scale, fill_value), -1)


def fused_scale_mask_softmax_dropout(
    x: Tensor,
    mask: Tensor,
    *,
    fill_value: float = 0.0,
    scale: float = 1.0,
    p: float = 0.5,
    training: bool = True,
    generator: Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """`fused_scale_mask_softmax` with dropout, and without."""
    y = fused_scale_mask_softmax(x, mask, fill_value=fill_value, scale=scale)
    return dropout(y, p, training, generator=generator), y


def fused_scale_tril(
    x: Tensor, diagonal: int = 0, fill_value: float = 0, scale: float = 1
) -> Tensor:
    """scale * x up to and including a diagonal, `fill_value` above."""
    y = tensor_ops.tril(x * scale, diagonal)
    if fill_value == 0:
        return y
    below = tensor_ops.tril(tensor_ops.ones_like(x), diagonal) != 0
    return tensor_ops.where(below, y, fill_value)


def fused_scale_tril_softmax_mask_scale(
    a: Tensor,
    *,
    p: float = 0.5,
    diagonal: int,
    tril_scale_value: float,
    tril_fill_value: float = 0.0,
    generator: Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """The softmax of `fused_scale_tril` with dropout, and without."""
    y = softmax(fused_scale_tril(a, diagonal, tril_fill_value, tril_scale_value), -1)
    return dropout(y, p, generator=generator), y


# Normalization.


def layer_norm(
    x: Tensor, *, begin_norm_axis: int, begin_params_axis: int, epsilon: float
) -> Tensor:
    """Layer normalization over the dims from `begin_norm_axis` on."""
    return F.layer_norm(x, x.shape[wrap(begin_norm_axis, x.ndim) :], None, None, epsilon)


def layer_norm_affine(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    begin_norm_axis: int,
    begin_params_axis: int,
    epsilon: float,
) -> Tensor:
    """`layer_norm` with a weight and a bias; both axes must be the same."""
    dim = wrap(begin_norm_axis, x.ndim)
    if dim != wrap(begin_params_axis, x.ndim):
        raise OnefoldValueError(
            f"layer_norm_affine: begin_norm_axis={begin_norm_axis} and begin_params_axis="
            f"{begin_params_axis} must be the same dim"
        )
    return F.layer_norm(x, x.shape[dim:], gamma, beta, epsilon)


def rms_norm(
    x: Tensor, weight: Tensor | None, normalized_shape: Sequence[int], eps: float
) -> Tensor:
    """x divided by its root mean square over the last dims, times the weight."""
    return F.rms_norm(x, normalized_shape, weight, eps)


def skip_layer_norm(
    x: Tensor,
    *,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    skip: Tensor | None = None,
    epsilon: float = 1e-5,
    alpha: float = 1.0,
) -> Tensor:
    """Layer normalization over the last dim of x + bias + alpha * skip."""
    return F.layer_norm(_skipped(x, bias, skip, alpha), x.shape[-1:], gamma, beta, epsilon)


def skip_rms_norm(
    x: Tensor,
    *,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    skip: Tensor | None = None,
    epsilon: float = 1e-5,
    alpha: float = 1.0,
) -> Tensor:
    """RMS normalization over the last dim of x + bias + alpha * skip."""
    return F.rms_norm(_skipped(x, bias, skip, alpha), x.shape[-1:], weight, epsilon)


# Indexing.


def gather(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """The slices of x at `indices`, of any shape, along the dim `axis`."""
    dim = wrap(axis, x.ndim)
    rows = tensor_ops.index_select(x, dim, indices.reshape(-1))
    return rows.reshape(*x.shape[:dim], *indices.shape, *x.shape[dim + 1 :])


def _along(bias: Tensor, x: Tensor, axis: int) -> Tensor:
    """The vector in the shape in which it is added along a dim of x."""
    if bias.ndim != 1 or not -x.ndim <= axis < x.ndim or bias.shape[0] != x.shape[axis]:
        raise ShapeError(
            f"the bias of shape {tuple(bias.shape)} must be a vector of the size of dim {axis} of "
            f"the other tensor, which has shape {tuple(x.shape)}"
        )
    behind = x.ndim - 1 - axis % x.ndim
    return bias.reshape(-1, *repeat(1, behind)) if behind else bias


def _skipped(x: Tensor, bias: Tensor | None, skip: Tensor | None, alpha: float) -> Tensor:
    if bias is not None:
        x = x + bias
    return x if skip is None else x + skip * alpha


def _check_generator(generator: Generator | None) -> None:
    if generator is not None and generator is not default_generator:
        raise OnefoldValueError(
            "dropout draws from the default generator only; leave generator out, and seed it with "
            "flow.manual_seed"
        )


# Settings and notes of torch's, which programs make before they begin.


def _log_api_usage_once(event: str) -> None:
    """Notes nothing."""


def _get_tracing_state() -> None:
    """None: nothing is traced."""


def _jit_setting(value: bool) -> bool:
    """Changes nothing: no code is scripted."""
    return value


_jit_set_profiling_executor = _jit_set_profiling_mode = _jit_setting
_jit_override_can_fuse_on_cpu = _jit_override_can_fuse_on_gpu = _jit_setting
_jit_set_texpr_fuser_enabled = _jit_set_nvfuser_enabled = _jit_setting


globals().update(public_functions(__name__, FORMS | LOSSES))


def __getattr__(name: str) -> Callable[..., Any]:
    found = None if name.startswith("_") else find_name(name) or getattr(F, name, None)
    if found is None:
        raise AttributeError(
            f"flow._C has no function {name!r}; see flow and flow.nn.functional for public ones"
        )
    globals()[name] = made = with_argument_errors(found)
    return made
