"""Gradients of functions: vjp, jvp, jacobian, hessian, vhp, hvp (`flow.autograd.functional`).

As in torch: `inputs` is a tensor or a tuple of them, and so is what the function gives. What does
not depend on an input has gradient zero; with `strict`, a result that depends on none is an error.
With `create_graph` the results can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import OnefoldRuntimeError
from .autograd import grad
from .grad_mode import enable_grad
from .tensor import Tensor, tensor_ops

Inputs = Tensor | tuple[Tensor, ...]
Func = Callable[..., Any]  # gives a tensor, or a tuple of them


def _leaves(inputs: Inputs, keep: bool) -> tuple[Tensor, ...]:
    """New tensors of the inputs that require grad; with `keep`, still on the tape."""
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
    """`grad`, with zeros for leaves that the outputs do not depend on."""
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
    func: Func,
    inputs: Inputs,
    v: Inputs | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """func(*inputs), and v times its Jacobian."""
    leaves = _leaves(inputs, create_graph)
    made = func(*leaves)
    outputs = _tuple(made)
    seeds = [None] * len(outputs) if v is None else _tuple(v)
    found = _gradients(outputs, leaves, seeds, create_graph, strict)
    return _done(made, create_graph), _like(found, inputs)


@enable_grad
def jvp(
    func: Func,
    inputs: Inputs,
    v: Inputs | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """func(*inputs), and its Jacobian times v, by differentiating the vjp in its cotangent."""
    leaves = _leaves(inputs, create_graph)
    made = func(*leaves)
    outputs = _tuple(made)
    cotangents = [tensor_ops.zeros_like(y).requires_grad_() for y in outputs]
    linear = _gradients(outputs, leaves, cotangents, True, strict)
    if v is None and sum(leaf.numel() for leaf in leaves) != 1:
        raise OnefoldRuntimeError(
            "The vector v can only be None if the input to the user-provided function is a single "
            "Tensor with a single element."
        )
    seeds = [tensor_ops.ones_like(leaf) for leaf in leaves] if v is None else _tuple(v)
    found = gradients_or_zeros(linear, cotangents, seeds, create_graph)
    return _done(made, create_graph), _like(found, made)


@enable_grad
def jacobian(
    func: Func,
    inputs: Inputs,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian by outputs and inputs, each of shape (*output.shape, *input.shape).

    `vectorize` and `strategy` change nothing: there is one way.
    """
    leaves = _leaves(inputs, create_graph)
    made = func(*leaves)
    rows = [_like(_rows(y, leaves, create_graph, strict), inputs) for y in _tuple(made)]
    return _like(rows, made)


def _rows(
    output: Tensor, leaves: Sequence[Tensor], create_graph: bool, strict: bool
) -> tuple[Tensor, ...]:
    """The Jacobian of `output` for each leaf, computed row by row."""
    flat = tensor_ops.reshape(output, (-1,))
    rows = [
        _gradients([tensor_ops.getitem(flat, index)], leaves, None, create_graph, strict, True)
        for index in range(flat.numel())
    ]
    return tuple(
        tensor_ops.reshape(tensor_ops.stack([row[i] for row in rows]), (*output.shape, *leaf.shape))
        for i, leaf in enumerate(leaves)
    )


@enable_grad
def hvp(
    func: Func,
    inputs: Inputs,
    v: Inputs | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """func(*inputs) of one element, and its Hessian times v."""
    leaves = _leaves(inputs, create_graph)
    output = func(*leaves)
    first = _gradients([output], leaves, None, True, strict)
    seeds = None if v is None else _tuple(v)
    return _done(output, create_graph), _like(
        _gradients(first, leaves, seeds, create_graph, strict), inputs
    )


vhp = hvp  # the Hessian is symmetric


@enable_grad
def hessian(
    func: Func,
    inputs: Inputs,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The Hessian of a function with one element as result; blocks by pairs of inputs."""
    leaves = _leaves(inputs, create_graph)
    first = _gradients([func(*leaves)], leaves, None, True, strict)
    return _like([_like(_rows(g, leaves, create_graph, strict), inputs) for g in first], inputs)


def _gradients(
    outputs: Sequence[Tensor],
    leaves: Sequence[Tensor],
    seeds: Sequence[Tensor | None] | None,
    create_graph: bool,
    strict: bool,
    retain_graph: bool | None = None,
) -> tuple[Tensor, ...]:
    """`gradients_or_zeros`; with `strict`, an error for inputs that no output depends on."""
    if strict and not all(y.requires_grad for y in outputs):
        raise OnefoldRuntimeError(
            "A result of the function does not depend on its inputs, which is not allowed in "
            "strict mode; leave strict=True out to get zeros"
        )
    return gradients_or_zeros(outputs, leaves, seeds, create_graph, retain_graph)


def _done(made: Any, create_graph: bool) -> Any:
    """The results of the function, detached unless they may be differentiated again."""
    if create_graph:
        return made
    return _like([tensor_ops.detach(y) for y in _tuple(made)], made)
