"""The functions that programs import from torch.distributions.utils."""

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

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]
