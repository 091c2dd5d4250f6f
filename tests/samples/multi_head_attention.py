"""Samples of multi-head attention."""

from typing import Any

import torch

from onefold.engine.names import names
from onefold.testing import Sample, T

NAME = "multi_head_attention_forward"
E, H, N, L, S = 8, 2, 2, 5, 4


def small(*shape: int) -> Any:
    """Weights by which scores stay so small that half precision can tell them apart."""
    return T(*shape, low=-0.3, high=0.3)


OUT = (small(E, E), small(E))
IN = (small(3 * E, E), small(3 * E))
TENSORS = (T(L, N, E), T(S, N, E), T(S, N, E))
CAUSAL = torch.full((L, L), float("-inf"), dtype=torch.float64).triu(1)
# Every query sees a key.
PADDED = torch.tensor([[False, False, True, True], [False, True, False, True]])
HIDDEN = torch.ones(L, S, dtype=torch.bool).triu(1)


def of(
    *tensors: Any, inputs: Any = IN, rows: Any = (None, None), zero: bool = False, **kw: Any
) -> Sample:
    """A sample with the inputs, the projections and the rows (bias_k, bias_v) given."""
    return Sample(NAME, (*tensors, E, H, *inputs, *rows, zero, 0.0, *OUT), kw)


def same(count: int, **kw: Any) -> Sample:
    """A sample whose key is the value, and the query too if `count` is 1."""

    def adapted(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            given = args[:count]
            return function(given[0], given[-1], given[-1], *args[count:], **kwargs)

        return call

    tensors = TENSORS[:count]
    return Sample(
        NAME,
        (*tensors, E, H, *IN, None, None, False, 0.0, *OUT),
        kw,
        torch=adapted(torch.nn.functional.multi_head_attention_forward),
        call=adapted(getattr(names, NAME)),
        id=f"of {count} inputs: {NAME}",
    )


SEPARATE: dict[str, Any] = {
    "use_separate_proj_weight": True,
    "q_proj_weight": small(E, E),
    "k_proj_weight": small(E, 6),
    "v_proj_weight": small(E, 3),
}
APART = (T(L, N, E), T(S, N, 6), T(S, N, 3))

SAMPLES = [
    same(1),
    same(1, need_weights=False, attn_mask=CAUSAL, is_causal=True),
    same(2, average_attn_weights=False),
    same(2, need_weights=False, key_padding_mask=PADDED),
    of(*TENSORS, attn_mask=T(L, S), key_padding_mask=T(N, S)),
    of(*TENSORS, need_weights=False, attn_mask=HIDDEN, key_padding_mask=PADDED),
    of(*TENSORS, need_weights=False, attn_mask=T(N * H, L, S)),
    of(*TENSORS, rows=(T(1, 1, E), T(1, 1, E)), zero=True, attn_mask=HIDDEN),
    of(*TENSORS, rows=(T(1, 1, E), T(1, 1, E)), zero=True, need_weights=False, attn_mask=T(L, S)),
    of(*APART, inputs=(None, small(3 * E)), need_weights=False, **SEPARATE),
    of(*APART, inputs=(None, None), key_padding_mask=PADDED, **SEPARATE),
    of(*TENSORS, inputs=(small(3 * E, E), None), static_k=T(N * H, 3, 4), static_v=T(N * H, 3, 4)),
    of(T(L, E), T(S, E), T(S, E), attn_mask=T(H, L, S), need_weights=False),
    of(T(L, E), T(S, E), T(S, E), key_padding_mask=PADDED[0]),
]
