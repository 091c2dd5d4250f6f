"""The gradients that a program gives: with which backward starts, or that it sets."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..errors import (
    AutogradError,
    MixedTensorsError,
    OnefoldTypeError,
    PlacementError,
    ShapeError,
)
from .meta import Meta
from .names import names
from .tensor import Tensor, tensor_ops


def seed_of(index: int, output: Tensor, gradient: Tensor | None) -> Tensor:
    """The gradient from which backward starts at `output`."""
    if output.node is None:
        raise AutogradError(
            f"element {index} of tensors does not require grad and does not have a grad_fn: "
            "nothing that made this tensor requires grad. Set requires_grad=True on an input, or "
            "check that it was not computed under no_grad()."
        )
    if gradient is None:
        if output.meta.numel != 1:
            raise AutogradError(
                "grad can be implicitly created only for scalar outputs, but this tensor has "
                f"shape {tuple(output.shape)}; pass gradient=, or reduce it with sum() or mean() "
                "first."
            )
        return tensor_ops.ones_like_whole(output)
    check_gradient(output, gradient, "gradient")
    return gradient if gradient.dtype == output.dtype else names.cast(gradient, output.dtype)


def rows_of_seeds(given: Sequence[Tensor | None]) -> list[list[Tensor]]:
    """For each index of their first dim the gradients of the outputs, of which all are given."""
    seeds = [seed for seed in given if isinstance(seed, Tensor) and seed.ndim]
    sizes = {int(seed.shape[0]) for seed in seeds}
    if len(seeds) < len(given) or len(sizes) != 1 or 0 in sizes:
        shapes = [tuple(x.shape) if isinstance(x, Tensor) else x for x in given]
        raise ShapeError(
            "autograd.grad: with is_grads_batched=True every output needs a gradient with one more "
            f"dim in front, of one size, at least 1, but grad_outputs have shapes {shapes}"
        )
    return [[tensor_ops.select(seed, 0, i) for seed in seeds] for i in range(sizes.pop())]


def check_gradient(tensor: Tensor, gradient: object, what: str) -> None:
    """Raise unless `gradient` can be a gradient of `tensor`: a Tensor of its shape and ranks."""
    if type(gradient) is Tensor and gradient.meta is tensor.meta:
        return
    if not isinstance(gradient, Tensor):
        found = "torch.Tensor" if isinstance(gradient, torch.Tensor) else type(gradient).__name__
        raise OnefoldTypeError(f"{what} must be an onefold Tensor, but got {found}")
    if gradient.shape != tensor.shape:
        raise ShapeError(
            f"{what} must have the shape of the tensor: the tensor is {tuple(tensor.shape)}, "
            f"the gradient {tuple(gradient.shape)}"
        )
    check_ranks(tensor.meta, gradient, what)


def check_ranks(of: Meta, gradient: Tensor, what: str) -> None:
    """Raise unless a gradient is local, or on the placement, as what it is the gradient of."""
    if gradient.is_global != of.is_global:
        raise MixedTensorsError(
            f"{what} must be local or global as the tensor is: the tensor is {of!r}, the "
            f"gradient {gradient.meta!r}; convert it with to_global or to_local"
        )
    if gradient.meta.placement is not of.placement:
        raise PlacementError(
            f"Expected all tensors to be on the same placement, but found at least two placements: "
            f"the tensor is on {of.placement!r}, the {what} on "
            f"{gradient.meta.placement!r}; move it with to_global(placement=...)"
        )
