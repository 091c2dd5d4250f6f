"""The functions that programs import from torch.distributions.utils."""

from collections.abc import Sequence as _Sequence

import torch as _torch

from ..engine.argument_types import DeviceLike as _DeviceLike
from ..engine.ops.random_creation import randn as _randn
from ..engine.tensor import Tensor as _Tensor
from .broadcast_parameters import broadcast_all
from .discrete import (
    clamp_probs,
    logits_to_probs,
    probs_to_logits,
)
from .event_transforms import (
    tril_matrix_to_vec,
    vec_to_tril_matrix,
)
from .lazy_property import lazy_property
from .transform import sum_rightmost as _sum_rightmost  # noqa: F401 - packages import it

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]


def _standard_normal(
    shape: _Sequence[int], dtype: _torch.dtype, device: _DeviceLike | None
) -> _Tensor:
    """Standard normal numbers, for the packages of distributions that import this."""
    return _randn(*shape, dtype=dtype, device=device)
