"""Mixed precision: the dtype in which each op runs, in graphs and under autocast, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from .meta import Meta
from .tensor import Tensor

DTYPES = (torch.float16, torch.bfloat16)

# Matrix products, which are most of the work and accumulate in float32 for every dtype of the
# inputs; and prelu, as in torch.
LOW = frozenset(
    """
    attention bmm contraction convolution grouped_rows grouped_sums linalg.multi_dot linalg.vecdot
    linear linear_cross_entropy linear_cross_entropy_with_grads linear_cross_entropy_with_input_grad
    matmul matmul_nt matmul_tn mm mm_nt mm_tn packed_attention prelu_kernel rows_tn
    gru lstm rnn_relu rnn_tanh
    """.split()
)

# The same on GPUs alone, as in torch.
LOW_ON_GPU = frozenset(["mv"])

# What overflows float16, or adds up many rounding errors. Source: the lists of torch.autocast,
# with the means and the variances.
FLOAT32 = frozenset(
    """
    acos asin cosh erfinv exp exp2 expm1 log log10 log1p log2 logit pow reciprocal rsqrt sinh
    square tan
    digamma lgamma polygamma
    logaddexp logaddexp2 logsigmoid softplus xlogy
    cumprod cumsum logsumexp mean prod std sum sum_rows var variance_around
    log_softmax softmax
    group_norm_with_stats group_normalized standardized
    layer_norm layer_norm_and_low_copy layer_norm_with_stats layer_norm_with_stats_and_low_copy
    norm_power norm_root rms_norm rms_norm_and_low_copy vector_norm
    absolute_error binary_cross_entropy binary_cross_entropy_with_logits cross_entropy
    cross_entropy_with_lse huber_error
    kl_divergence nll_loss smooth_error squared_error target_weights
    adaptive_avg_pool3d avg_pool3d cdist ctc_loss grid_sample grid_sampler lp_pool max_unpool1d
    max_unpool2d max_unpool3d multi_margin_loss multilabel_margin_loss nanquantile polar quantile
    stft view_as_complex
    cholesky cholesky_inverse cholesky_solve geqrf inverse lu_solve orgqr ormqr pinverse qr svd
    triangular_solve
    linalg.cholesky linalg.cholesky_ex linalg.cond linalg.eig linalg.eigh linalg.eigvals
    linalg.eigvalsh linalg.householder_product linalg.inv linalg.inv_ex linalg.lstsq
    linalg.matrix_rank linalg.qr linalg.solve linalg.svd linalg.svdvals linalg.tensorinv
    linalg.tensorsolve
    fft.fft fft.fft2 fft.fftn fft.hfft fft.hfft2 fft.hfftn fft.ifft fft.ifft2 fft.ifftn fft.ihfft
    fft.ihfft2 fft.ihfftn fft.irfft fft.irfft2 fft.irfftn fft.rfft fft.rfft2 fft.rfftn
    """.split()
)

# What gives float32 of inputs of half precision: the last attribute tells it to. A cast would write
# the logits, or what is normalized, in float32, and read them again.
WIDENING = frozenset(
    """
    cross_entropy cross_entropy_with_lse linear_cross_entropy linear_cross_entropy_with_grads
    linear_cross_entropy_with_input_grad group_normalized standardized
    """.split()
)

# Computed in float32 and rounded once, whatever the inputs are.
AS_GIVEN = frozenset(
    """
    batch_norm_slope batch_normalized channel_statistics channel_sums rotary
    group_norm_slope group_statistics group_sums standard_slope
    """.split()
)

# Their kernels widen inputs of other dtypes themselves, exactly as a cast before them, and so do
# those of their gradients. Eager programs save the cast; graphs cast, and fuse the cast.
PROMOTING = frozenset(("add", "mul", "sub"))

_MIXED = (torch.float32, *DTYPES)  # float64 was asked for by the program, and stays


def dtype_of_inputs(op_name: str, metas: Iterable[Meta], low: torch.dtype) -> torch.dtype | None:
    """The dtype to which an op's float16, bfloat16 and float32 inputs are cast; None: no cast.

    Ops in neither list run in the widest of their inputs' dtypes. A tensor without dims does not
    widen them, as in type promotion.

    >>> x = Meta.of((2, 2), torch.float32, device=torch.device("cpu"))
    >>> dtype_of_inputs("mm", [x, x], torch.bfloat16)
    torch.bfloat16
    """
    floating = [meta for meta in metas if meta.is_floating]
    if op_name in AS_GIVEN or not floating or any(meta.dtype not in _MIXED for meta in floating):
        return None
    if op_name in LOW or (op_name in LOW_ON_GPU and floating[0].device_type == "cuda"):
        return low
    if op_name in FLOAT32:
        return torch.float32
    found = {meta.dtype for meta in floating if meta.ndim > 0}
    return None if len(found) < 2 else torch.float32  # two of the three widen to float32


def in_mixed_precision(
    op_name: str,
    slots: tuple[object, ...],
    attrs: tuple[object, ...],
    low: torch.dtype,
    cast: Callable[[torch.dtype, object], object],
) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """The inputs and the attributes with which an op runs; `cast` casts a floating point input."""
    metas = [slot.meta for slot in slots if isinstance(slot, Tensor)]
    dtype = dtype_of_inputs(op_name, metas, low)
    if dtype is None:
        return slots, attrs
    made = tuple([cast(dtype, slot) for slot in slots])
    if op_name not in WIDENING:
        return made, attrs
    first = slots[0]
    if isinstance(first, Tensor) and first.dtype in DTYPES:
        made = (first, *made[1:])
    return made, (*attrs[:-1], torch.float32)
