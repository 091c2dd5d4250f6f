"""The functions behind the layers, under torch's names (`flow.nn.functional`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..engine import ops as _ops  # noqa: F401  (importing it defines the ops)
from ..engine.names import find_name

# What torch.nn.functional has and onefold too, and what networks need besides: gated activations,
# the loss of a last layer, attention of packed sequences. `pad` and the like are the op itself.
FUNCTIONS = """
adaptive_avg_pool1d adaptive_avg_pool2d alpha_dropout attention_varlen avg_pool1d avg_pool2d
batch_norm binary_cross_entropy binary_cross_entropy_with_logits celu conv1d conv2d conv3d
conv_transpose1d conv_transpose2d cosine_similarity cross_entropy dropout dropout1d dropout2d
dropout3d elu embedding geglu gelu group_norm hardshrink hardsigmoid hardswish hardtanh huber_loss
instance_norm kl_div l1_loss layer_norm leaky_relu linear linear_cross_entropy log_softmax
logsigmoid max_pool1d max_pool2d max_pool3d mish mse_loss nll_loss normalize one_hot pad
pixel_shuffle pixel_unshuffle relu relu6 rms_norm rotary scaled_dot_product_attention selu sigmoid
silu smooth_l1_loss softmax softmin softplus softshrink softsign swiglu tanh tanhshrink threshold
unfold
""".split()
# `unfold` is a tensor method too, of another meaning.
RENAMED = {"unfold": "im2col"}


def __getattr__(name: str) -> Callable[..., Any]:
    found = find_name(RENAMED.get(name, name)) if name in FUNCTIONS else None
    if found is None:
        raise AttributeError(
            f"onefold.nn.functional has no function {name!r}; it has {', '.join(FUNCTIONS)}"
        )
    return found


def __dir__() -> list[str]:
    return sorted(FUNCTIONS)
