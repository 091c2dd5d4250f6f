"""Table: for each op of the engine, which Triton twins do its work on cuda, or why none does.

`table.json` is what the ops were seen to do; tests/triton/test_table.py runs them all and compares.
An op is whole when torch does no work in it: views and other changes of metadata are none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

PATH = Path(__file__).with_name("table.json")

# Ops whose work torch does also on cuda, and why.
REASONS: dict[str, str] = {}

# Ops that have no twin yet. Names may only be taken out.
MISSING: tuple[str, ...] = tuple(
    """
    abs absolute_error acos acosh adaptive_avg_pool adaptive_avg_pool_grad add add_at
    add_rows addcdiv addcmul all amax amin angle any argmax argmin asin asinh atan atan2
    atanh attention attention_grad avg_pool avg_pool_grad bit_cross_entropy
    bit_cross_entropy_with_logits bitwise_and bitwise_left_shift bitwise_not bitwise_or
    bitwise_right_shift bitwise_xor bmm cast cat causal_fill ceil clamp clamp_max clamp_min
    clear_slice clone conj constant_like contraction convolution convolution_weight_grad
    copysign cos cosh cross_entropy cross_entropy_grad cumprod cumprod_backward
    cumprod_backward_backward cumsum deg2rad digamma div dot dropout elu elu_backward
    embedding embedding_grad eq erf erfc erfinv exp exp2 expm1 first_index flash_attention
    flash_attention_grad flip floor floor_divide fmax fmin fmod frac gather ge gelu
    gelu_backward gt hardshrink hardshrink_backward hardsigmoid hardsigmoid_backward
    hardswish hardswish_backward hardtanh hardtanh_backward heaviside huber_error hypot imag
    isclose isfinite isinf isnan isneginf isposinf kl_divergence kthvalue layer_norm_grad
    layer_norm_kept_grad le leaky_relu leaky_relu_backward lerp lgamma linear log log10
    log1p log2 log_softmax log_softmax_grad logaddexp logaddexp2 logical_and logical_not
    logical_or logical_xor logit logsigmoid logsigmoid_backward logsumexp lt masked_fill
    matmul matmul_nt matmul_tn max max_pool max_pool_grad max_pool_take maximum mean median
    min minimum mish mish_backward mm mm_nt mm_tn mul mv nan_to_num nanmedian ne neg
    nll_loss nll_loss_grad norm_power norm_root on_diagonal one_hot outer pad pad_grad
    pad_own pick place polygamma positive pow prod product_of_others
    product_of_others_backward put_rows rad2deg real reciprocal relu relu_backward remainder
    repeat repeat_interleave rms_norm_grad roll root round rows_tn rsqrt rsub scatter
    scatter_reduce set_slice sgn sigmoid sigmoid_backward sign signbit silu silu_backward
    sin sinc sinh slice smooth_error softmax softmax_grad softplus softplus_backward
    softshrink softshrink_backward softsign sort spread_shares sqrt square squared_error
    stack std sub sum sum_rows sum_to take_rows tan tanh tanh_backward tanhshrink
    target_weights threshold threshold_backward topk tril triu trunc unfold_grad unslice var
    variance_around vector_norm view where xlogy
    """.split()
)


@dataclass(frozen=True, slots=True)
class Row:
    """What one op uses: twins, and operators of torch that compute or move values."""

    twins: tuple[str, ...]
    torch: tuple[str, ...]


def read() -> dict[str, Row]:
    """The committed table, by op."""
    rows = json.loads(PATH.read_text())
    return {name: Row(tuple(row["twins"]), tuple(row["torch"])) for name, row in rows.items()}


def write(rows: Mapping[str, Row]) -> None:
    """One line for each op, sorted."""
    lines = [f"{json.dumps(name)}: {json.dumps(asdict(rows[name]))}" for name in sorted(rows)]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def missing(rows: Mapping[str, Row], ops: Sequence[str]) -> list[str]:
    """The ops that use torch, or that were never run, and have no reason for it."""
    return [name for name in ops if name not in REASONS and (name not in rows or rows[name].torch)]


def text(rows: Mapping[str, Row]) -> str:
    """The table to read: op, and its twins or why it has none."""
    lines = []
    for name, row in sorted(rows.items()):
        done = ", ".join(row.twins) or "changes metadata only"
        if row.torch:
            why = REASONS.get(name, "no twin yet")
            done = f"torch ({', '.join(row.torch)}): {why}"
        lines.append(f"{name:28} {done}")
    return "\n".join(lines)
