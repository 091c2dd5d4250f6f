"""Gradients of functions: vjp, jvp, jacobian, hessian, vhp, hvp (`flow.autograd.functional`).

As in torch: `inputs` is a tensor or a tuple of them, and what does not depend on an input has
gradient zero. With `create_graph` the results can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .autograd import grad
from .grad_mode import enable_grad
from .tensor import Tensor, tensor_ops

Inputs = Tensor | tuple[Tensor, ...]


def _leaves(inputs: Inputs, keep: bool) -> tuple[Tensor, ...]:
    """The inputs as tensors of their own that require grad; with `keep`, still on the tape."""
    return tuple(
        t if keep and t.requires_grad else tensor_ops.detach(t).requires_grad_()
        for t in _tuple(inputs)
    )


def _tuple(inputs: Inputs) -> tuple[Tensor, ...]:
    return (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)


def _like(results: Sequence[Any], inputs: Inputs) -> Any:
    return results[0] if isinstance(inputs, Tensor) else tuple(results)


def gradients_or_zeros(
    outputs: Sequence[Tensor],
    leaves: Sequence[Tensor],
    seeds: Sequence[Tensor | None] | None = None,
    create_graph: bool = False,
    retain_graph: bool | None = None,
) -> tuple[Tensor, ...]:
    """Like `grad`, with zeros where there is no dependence at all."""
    given = [None] * len(outputs) if seeds is None else seeds
    linked = [(y, v) for y, v in zip(outputs, given, strict=True) if y.requires_grad]
    found: Sequence[Tensor | None] = [None] * len(leaves)
    if linked:
        found = grad(
            [y for y, _ in linked],
            leaves,
            [v for _, v in linked],
            retain_graph=retain_graph,
            create_graph=create_graph,
            allow_unused=True,
        )
    return tuple(
        tensor_ops.zeros_like(leaf) if g is None else g
        for g, leaf in zip(found, leaves, strict=True)
    )


@enable_grad
def vjp(
    func: Callable[..., Tensor], inputs: Inputs, v: Tensor | None = None, create_graph: bool = False
) -> tuple[Tensor, Any]:
    """func(*inputs), and v times its Jacobian."""
    leaves = _leaves(inputs, create_graph)
    output = func(*leaves)
    return output, _like(gradients_or_zeros([output], leaves, [v], create_graph), inputs)


@enable_grad
def jvp(
    func: Callable[..., Tensor], inputs: Inputs, v: Inputs, create_graph: bool = False
) -> tuple[Tensor, Tensor]:
    """func(*inputs), and its Jacobian times v, by differentiating the vjp in its cotangent."""
    leaves = _leaves(inputs, create_graph)
    output = func(*leaves)
    cotangent = tensor_ops.zeros_like(output).requires_grad_()
    linear = gradients_or_zeros([output], leaves, [cotangent], True)
    return output, gradients_or_zeros(linear, [cotangent], _tuple(v), create_graph)[0]


@enable_grad
def jacobian(func: Callable[..., Tensor], inputs: Inputs, create_graph: bool = False) -> Any:
    """The Jacobian for each input, of shape (*output.shape, *input.shape)."""
    leaves = _leaves(inputs, create_graph)
    return _like(_rows(func(*leaves), leaves, create_graph), inputs)


def _rows(output: Tensor, leaves: Sequence[Tensor], create_graph: bool) -> tuple[Tensor, ...]:
    """The Jacobian of `output` for each leaf, one element of the output after the other."""
    flat = tensor_ops.reshape(output, (-1,))
    rows = [
        gradients_or_zeros(
            [tensor_ops.getitem(flat, index)], leaves, None, create_graph, retain_graph=True
        )
        for index in range(flat.numel())
    ]
    return tuple(
        tensor_ops.reshape(tensor_ops.stack([row[i] for row in rows]), (*output.shape, *leaf.shape))
        for i, leaf in enumerate(leaves)
    )


@enable_grad
def hvp(
    func: Callable[..., Tensor], inputs: Inputs, v: Inputs, create_graph: bool = False
) -> tuple[Tensor, Any]:
    """func(*inputs) of one element, and its Hessian times v."""
    leaves = _leaves(inputs, create_graph)
    output = func(*leaves)
    first = gradients_or_zeros([output], leaves, None, True)
    return output, _like(gradients_or_zeros(first, leaves, _tuple(v), create_graph), inputs)


vhp = hvp  # the Hessian is symmetric


@enable_grad
def hessian(func: Callable[..., Tensor], inputs: Inputs, create_graph: bool = False) -> Any:
    """The Hessian of a function with one element as result; blocks by pairs of inputs."""
    leaves = _leaves(inputs, create_graph)
    first = gradients_or_zeros([func(*leaves)], leaves, None, True)
    return _like([_like(_rows(g, leaves, create_graph), inputs) for g in first], inputs)
