"""Gradients of functions: vjp, jvp, jacobian, hessian, vhp, hvp (`flow.autograd.functional`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .autograd import grad
from .grad_mode import enable_grad
from .names import names
from .tensor import Tensor

Inputs = Tensor | tuple[Tensor, ...]


def _leaves(inputs: Inputs, keep: bool = False) -> tuple[Tensor, ...]:
    """The inputs as tensors of their own that require grad (or the inputs themselves)."""
    tensors = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if keep:
        return tuple(t if t.requires_grad else names.detach(t).requires_grad_() for t in tensors)
    return tuple(names.detach(t).requires_grad_() for t in tensors)


def _like(results: tuple[Any, ...], inputs: Inputs) -> Any:
    return results[0] if isinstance(inputs, Tensor) else results


def _filled(found: tuple[Tensor | None, ...], tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(
        names.zeros_like(t) if g is None else g for g, t in zip(found, tensors, strict=True)
    )


@enable_grad
def vjp(
    func: Callable[..., Tensor], inputs: Inputs, v: Tensor | None = None, create_graph: bool = False
) -> tuple[Tensor, Any]:
    """func(*inputs), and v times its Jacobian."""
    leaves = _leaves(inputs, create_graph)
    output = func(*leaves)
    found = grad(output, leaves, v, create_graph=create_graph, allow_unused=True)
    return output, _like(_filled(found, leaves), inputs)


@enable_grad
def jvp(
    func: Callable[..., Tensor], inputs: Inputs, v: Inputs, create_graph: bool = False
) -> tuple[Tensor, Tensor]:
    """func(*inputs), and its Jacobian times v, by differentiating the vjp in its cotangent."""
    leaves = _leaves(inputs, create_graph)
    directions = (v,) if isinstance(v, Tensor) else tuple(v)
    output = func(*leaves)
    cotangent = names.zeros_like(output).requires_grad_()
    first = _filled(grad(output, leaves, cotangent, create_graph=True, allow_unused=True), leaves)
    linear = [(g, d) for g, d in zip(first, directions, strict=True) if g.requires_grad]
    if not linear:
        return output, names.zeros_like(output)
    found = grad(
        [g for g, _ in linear],
        cotangent,
        [d for _, d in linear],
        create_graph=create_graph,
        allow_unused=True,
    )
    return output, names.zeros_like(output) if found[0] is None else found[0]


@enable_grad
def jacobian(func: Callable[..., Tensor], inputs: Inputs, create_graph: bool = False) -> Any:
    """The Jacobian for each input, of shape (*output.shape, *input.shape)."""
    leaves = _leaves(inputs, create_graph)
    output = func(*leaves)
    flat = names.reshape(output, (-1,))
    rows: list[tuple[Tensor, ...]] = []
    for index in range(flat.numel()):
        found = grad(
            names.getitem(flat, index),
            leaves,
            retain_graph=True,
            create_graph=create_graph,
            allow_unused=True,
        )
        rows.append(_filled(found, leaves))
    whole = tuple(
        names.reshape(names.stack([row[i] for row in rows]), (*output.shape, *leaf.shape))
        for i, leaf in enumerate(leaves)
    )
    return _like(whole, inputs)


@enable_grad
def hvp(func: Callable[..., Tensor], inputs: Inputs, v: Inputs) -> tuple[Tensor, Any]:
    """func(*inputs) of one element, and its Hessian times v."""
    leaves = _leaves(inputs)
    directions = (v,) if isinstance(v, Tensor) else tuple(v)
    output = func(*leaves)
    first = _filled(grad(output, leaves, create_graph=True, allow_unused=True), leaves)
    linear = [(g, d) for g, d in zip(first, directions, strict=True) if g.requires_grad]
    if not linear:
        return output, _like(tuple(names.zeros_like(leaf) for leaf in leaves), inputs)
    found = grad([g for g, _ in linear], leaves, [d for _, d in linear], allow_unused=True)
    return output, _like(_filled(found, leaves), inputs)


vhp = hvp  # the Hessian is symmetric


def hessian(func: Callable[..., Tensor], inputs: Tensor) -> Any:
    """The Hessian of a function of one tensor with one element as result."""

    def gradient(x: Tensor) -> Tensor:
        found = grad(func(x), x, create_graph=True)[0]
        assert found is not None
        return found

    return jacobian(gradient, inputs)
