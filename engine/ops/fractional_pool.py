"""Max pooling over windows whose places are drawn at random."""

from __future__ import annotations

from ..argument_types import Sizes
from ..generated import register_variant
from ..tensor import Tensor
from .like import replicated_like
from .random_creation import rand
from .torch_rows import FUNCTIONS

Pooled = Tensor | tuple[Tensor, Tensor]


def _fractional(
    planes: int,
    input: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: float | tuple[float, ...] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Pooled:
    places = _random_samples
    if places is None:
        batch = input.shape[0] if input.ndim == planes + 2 else 1
        shape = batch, input.shape[-planes - 1], planes
        places = rand(*shape, dtype=input.dtype, **replicated_like(input))
    pool = FUNCTIONS[f"fractional_max_pool{planes}d_with_indices"]
    output, indices = pool(input, kernel_size, output_size, output_ratio, _random_samples=places)
    return (output, indices) if return_indices else output


_FRACTIONAL = """
    Maxima over the last {} dims, of windows whose places are drawn at random, as in torch.

    The result has `output_size`, or the input's size times `output_ratio`. With `return_indices`
    also the place of each maximum in its plane. Source: Graham, "Fractional Max-Pooling" (2014).
    """
for _planes in (2, 3):
    register_variant(
        f"fractional_max_pool{_planes}d", _fractional, _planes, _FRACTIONAL.format(_planes)
    )
