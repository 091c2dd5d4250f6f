"""The functions that programs import from torch.distributions.utils."""

from .broadcast_parameters import broadcast_all as broadcast_all
from .discrete import (
    clamp_probs as clamp_probs,
    logits_to_probs as logits_to_probs,
    probs_to_logits as probs_to_logits,
)
from .event_transforms import (
    tril_matrix_to_vec as tril_matrix_to_vec,
    vec_to_tril_matrix as vec_to_tril_matrix,
)
from .lazy_property import lazy_property as lazy_property
