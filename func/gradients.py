"""Gradients of functions: grad, vjp, jvp and Jacobians of functions of pytrees of tensors.

They can be nested, and used where tensors require grad: what a result depends on besides the
function's own arguments keeps its place on the tape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any
from weakref import WeakSet

from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from ..engine import interpreter
from ..engine.autograd_tape import Edge, Leaf, Node, Output
from ..engine.functional_autograd import gradients_or_zeros
from ..engine.grad_mode import enable_grad
from ..engine.ops.like import replicated_like
from ..engine.tensor import Tensor, tensor_ops
from ..errors import (
    OnefoldRuntimeError,
    OnefoldTypeError,
    OnefoldValueError,
    ShapeError,
    kind_of,
)
from .batching import vmap

ArgNums = int | tuple[int, ...]

# The arguments of transforms that have ended: nothing can be differentiated with respect to them
# any more.
_ended: WeakSet[Leaf] = WeakSet()


def grad(
    func: Callable[..., object], argnums: ArgNums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """The function that gives the gradients of `func`, whose result is a tensor without dims.

    They are those for the argument `argnums` (a pytree of tensors), or a tuple for several. With
    `has_aux` the function returns (result, other) and its gradient (gradients, other).

    >>> import onefold as flow
    >>> flow.func.grad(lambda x: x**3)(flow.tensor(2.0))
    tensor(12.)
    """
    with_value = grad_and_value(func, argnums, has_aux)

    @wraps(func)
    def call(*args: object, **kwargs: object) -> Any:
        gradients, value = with_value(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return call


def grad_and_value(
    func: Callable[..., object], argnums: ArgNums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """`grad` with the result of the function: (gradients, result), or (gradients, (result, other)).

    >>> import onefold as flow
    >>> flow.func.grad_and_value(lambda x: x**3)(flow.tensor(2.0))
    (tensor(12.), tensor(8.))
    """

    @wraps(func)
    def call(*args: object, **kwargs: object) -> Any:
        with _Transform() as own:
            result = func(*own.given(args, argnums), **kwargs)
            value, aux = _with_aux(result, has_aux)
            if not isinstance(value, Tensor) or value.ndim != 0:
                raise OnefoldRuntimeError(
                    "grad: Expected f(*args) to return a scalar tensor (without dims), got "
                    f"{tuple(value.shape) if isinstance(value, Tensor) else kind_of(value)}"
                )
            gradients = own.nested(own.gradients([value], [None]))
        value = own.outside((value, aux) if has_aux else value)
        return own.outside(gradients), value

    return call


def vjp(func: Callable[..., object], *primals: object, has_aux: bool = False) -> Any:
    """func(*primals), and a function from cotangents to the gradients of the primals.

    With `has_aux` the function returns (result, other), and other is the third result.

    >>> import onefold as flow
    >>> y, pull = flow.func.vjp(flow.sin, flow.tensor(0.0))
    >>> pull(flow.tensor(2.0))
    (tensor(2.),)
    """
    with _Transform() as own:
        output, aux = _with_aux(func(*own.given(primals, tuple(range(len(primals))))), has_aux)
        outputs, form = tree_flatten(output)
        _check_outputs("vjp", outputs)

    # torch's arguments by name, which change nothing: the tape is kept while `pull` is.
    def pull(
        *cotangents: object, retain_graph: bool = True, create_graph: bool | None = None
    ) -> Any:
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        seeds, shape = tree_flatten(given)
        if shape != form:
            raise OnefoldRuntimeError(
                f"vjp: the cotangents must be nested like the outputs, {form}, but are {shape}"
            )
        _check_directions("vjp: cotangent", seeds, "output", outputs)
        with own:
            gradients = own.nested(own.gradients(outputs, seeds))
        return own.outside(gradients)

    return own.outside((output, pull, aux) if has_aux else (output, pull))


def jvp(
    func: Callable[..., object],
    primals: Sequence[object],
    tangents: Sequence[object],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    """func(*primals), and the product of its Jacobian and the tangents.

    By differentiating the vjp in its cotangent, so it takes the time of two backward passes. With
    `strict` an output that depends on no primal is an error; else its product is zero.

    >>> import onefold as flow
    >>> flow.func.jvp(flow.sin, (flow.tensor(0.0),), (flow.tensor(2.0),))
    (tensor(0.), tensor(2.))
    """
    points, tree = tree_flatten(tuple(primals))
    directions, shape = tree_flatten(tuple(tangents))
    if shape != tree:
        raise OnefoldRuntimeError(
            f"jvp: the tangents must be nested like the primals, {tree}, but are {shape}"
        )
    _check_directions("jvp: tangent", directions, "primal", points)
    with _Transform() as own:
        output, aux = _with_aux(func(*own.given(primals, tuple(range(len(primals))))), has_aux)
        outputs, form = tree_flatten(output)
        _check_outputs("jvp", outputs)
        if strict and not all(_reaches(y, own.leaves) for y in outputs):
            raise OnefoldRuntimeError("jvp: an output does not depend on any primal (strict=True)")
        seeds = [tensor_ops.zeros_like(y).requires_grad_() for y in outputs]
        linear = own.gradients(outputs, seeds)
        products = gradients_or_zeros(linear, seeds, directions, True)
        own.leaves += seeds
    results = (output, tree_unflatten(products, form), *([aux] if has_aux else []))
    return own.outside(results)


def linearize(func: Callable[..., object], *primals: object) -> tuple[Any, Callable[..., Any]]:
    """func(*primals), and a function from tangents to the product of the Jacobian and them.

    The function may be called many times, for the price of one backward pass each; tangents must be
    nested like the primals.

    >>> import onefold as flow
    >>> y, push = flow.func.linearize(flow.sin, flow.tensor(0.0))
    >>> push(flow.tensor(2.0))
    tensor(2.)
    """
    points, tree = tree_flatten(primals)
    with _Transform() as own:
        output = func(*own.given(primals, tuple(range(len(primals)))))
        outputs, form = tree_flatten(output)
        _check_outputs("linearize", outputs)
        seeds = [tensor_ops.zeros_like(y).requires_grad_() for y in outputs]
        linear = own.gradients(outputs, seeds)
        own.leaves += seeds

    def push(*tangents: object) -> Any:
        given, shape = tree_flatten(tangents)
        if shape != tree:
            raise OnefoldRuntimeError(
                f"linearize: the tangents must be nested like the primals, {tree}, but are {shape}"
            )
        _check_directions("linearize: tangent", given, "primal", points)
        with own:
            products = gradients_or_zeros(linear, seeds, given, True)
        return own.outside(tree_unflatten(products, form))

    return own.outside(output), push


def jacrev(
    func: Callable[..., object],
    argnums: ArgNums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """The Jacobian of a function of tensors: for each output, argument by argument.

    Its blocks have shape (*output.shape, *argument.shape). Rows are computed all at once by `vmap`,
    or with `chunk_size` so many at a time, which takes less memory.

    >>> import onefold as flow
    >>> flow.func.jacrev(lambda x: x * x)(flow.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """

    @wraps(func)
    def call(*args: object, **kwargs: object) -> Any:
        with _Transform() as own:
            result = func(*own.given(args, argnums), **kwargs)
            output, aux = _with_aux(result, has_aux)
            _check_outputs("jacrev", tree_flatten(output)[0])
            blocks = tree_map(lambda y: own.jacobian(y, chunk_size), output)
        return own.outside((blocks, aux) if has_aux else blocks)

    return call


def jacfwd(
    func: Callable[..., object],
    argnums: ArgNums = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
) -> Callable[..., Any]:
    """The same as `jacrev`, whose way it takes."""
    return jacrev(func, argnums, has_aux=has_aux)


def hessian(func: Callable[..., object], argnums: ArgNums = 0) -> Callable[..., Any]:
    """The second derivatives of a function of tensors.

    >>> import onefold as flow
    >>> flow.func.hessian(lambda x: (x**3).sum())(flow.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacrev(jacrev(func, argnums), argnums)


class _Transform:
    """One differentiation: the arguments under new names, and the results outside of it."""

    def __init__(self) -> None:
        self.leaves: list[Tensor] = []
        self.form: Any = None
        self.records = (
            interpreter.is_grad_enabled()
        )  # whether results can be differentiated outside
        self._mode = enable_grad()

    def __enter__(self) -> _Transform:
        self._mode.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._mode.__exit__(*exc)

    def given(self, args: Sequence[object], argnums: ArgNums) -> list[Any]:
        """The arguments, with those that are differentiated as tensors of this transform."""
        many = argnums if isinstance(argnums, tuple) else (argnums,)
        if not all(isinstance(index, int) for index in many):
            raise OnefoldTypeError(
                f"argnums must be an int or a tuple of ints, but got {argnums!r}"
            )
        if not many or any(not -len(args) <= index < len(args) for index in many):
            raise OnefoldValueError(
                f"argnums={argnums!r} does not name arguments: the function got {len(args)}"
            )
        made, chosen = list(args), []
        for index in many:
            made[index] = tree_map(self._own, args[index])
            chosen.append(made[index])
        self.leaves, self.form = tree_flatten(tuple(chosen) if argnums is many else chosen[0])
        return made

    def _own(self, x: object) -> Tensor:
        if not isinstance(x, Tensor):
            raise OnefoldTypeError(
                "each argument that is differentiated must be an onefold Tensor, but got "
                f"{kind_of(x)}"
            )
        if x.requires_grad:  # a new name: other uses of x are not part of the derivative
            return tensor_ops.clone(x)
        return tensor_ops.detach(x).requires_grad_()

    def gradients(
        self, outputs: Sequence[Tensor], seeds: Sequence[Tensor | None]
    ) -> tuple[Tensor, ...]:
        return gradients_or_zeros(outputs, self.leaves, seeds, True)

    def nested(self, leaves: Sequence[Tensor]) -> Any:
        """What was computed for each leaf, in the structure of the arguments."""
        return tree_unflatten(list(leaves), self.form)

    def jacobian(self, output: Tensor, chunk_size: int | None) -> Any:
        """The Jacobian of one output, in the structure of the arguments."""
        if not output.numel():  # there are no rows to stack
            shapes = [(*output.shape, *leaf.shape) for leaf in self.leaves]
            pairs = zip(self.leaves, shapes, strict=True)
            return self.nested([leaf.new_zeros(shape) for leaf, shape in pairs])
        size = output.numel()
        each = tensor_ops.eye(size, dtype=output.dtype, **replicated_like(output))
        seeds = each.reshape(size, *output.shape)
        rows = vmap(lambda seed: self.gradients([output], [seed]), chunk_size=chunk_size)(seeds)
        blocks = [
            block.reshape(*output.shape, *leaf.shape)
            for block, leaf in zip(rows, self.leaves, strict=True)
        ]
        return self.nested(blocks)

    def outside(self, results: object) -> Any:
        """Results without their place on the tape, unless they depend on other tensors too."""
        _ended.update(leaf.node for leaf in self.leaves if isinstance(leaf.node, Leaf))

        def leave(x: object) -> Any:
            if not isinstance(x, Tensor) or not x.requires_grad:
                return x
            beyond = self.records and any(leaf not in _ended for leaf in _leaves_of(x))
            return x if beyond else tensor_ops.detach(x)

        return tree_map(leave, results)


def _with_aux(result: object, has_aux: bool) -> tuple[Any, Any]:
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise OnefoldRuntimeError(
            "with has_aux=True the function must return a tuple (output, aux), but got "
            f"{type(result).__name__}"
        )
    return result


def _check_outputs(what: str, outputs: Sequence[object]) -> None:
    for y in outputs:
        if not isinstance(y, Tensor):
            raise OnefoldTypeError(
                f"{what}: the function must return onefold Tensors, but got {kind_of(y)}"
            )


def _check_directions(
    what: str, given: Sequence[object], of: str, points: Sequence[object]
) -> None:
    """Raise unless each tangent (cotangent) is a tensor of the shape of its primal (output)."""
    for index, (v, x) in enumerate(zip(given, points, strict=True)):
        if v is None and of == "output":  # 1 for an output without dims
            continue
        if not isinstance(v, Tensor):
            raise OnefoldTypeError(
                f"{what} {index} must be an onefold Tensor, but got {kind_of(v)}"
            )
        if isinstance(x, Tensor) and v.shape != x.shape:
            raise ShapeError(
                f"{what} {index} must have the shape of {of} {index}, {tuple(x.shape)}, but has "
                f"{tuple(v.shape)}"
            )


def _edges(x: Tensor) -> set[Edge]:
    """Everything on the tape that a tensor was made from."""
    seen: set[Edge] = set()
    left: list[Edge | None] = [x.node]
    while left:
        edge = left.pop()
        if edge is not None and edge not in seen:
            seen.add(edge)
            if isinstance(edge, Output):
                left.append(edge.node)
            elif isinstance(edge, Node):
                left += edge.parents
    return seen


def _leaves_of(x: Tensor) -> list[Leaf]:
    return [edge for edge in _edges(x) if isinstance(edge, Leaf)]


def _reaches(x: Tensor, inputs: Sequence[Tensor]) -> bool:
    edges = _edges(x)
    return any(leaf.node in edges for leaf in inputs)
