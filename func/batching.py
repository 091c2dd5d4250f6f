"""vmap: a function of rows as a function of batches, by a loop over the rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ..engine import interpreter
from ..engine.generator import default_generator
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError, kind_of

T = TypeVar("T")
InDims = int | None | tuple[Any, ...] | list[Any] | dict[Any, Any]
_RANDOMNESS = ("error", "different", "same")


def functionalize(func: Callable[..., T], *, remove: str = "mutations") -> Callable[..., T]:
    """`func` itself: a captured program has no writes through views in it, and needs no transform.

    Raises OnefoldValueError for another `remove` than "mutations" and "mutations_and_views".
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise OnefoldValueError(
            "Valid options for functionalize's `remove` are 'mutations' and "
            f"'mutations_and_views', but got {remove!r}"
        )
    return func


def vmap(
    func: Callable[..., Any],
    in_dims: InDims = 0,
    out_dims: InDims = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """`func` for every index of the dims `in_dims` of its arguments, stacked along `out_dims`.

    `in_dims` and `out_dims` are a dim (or None: the same for every index) for all tensors, or a
    pytree of dims shaped like the arguments. Keyword arguments are the same for every index. A
    result with out_dim None is returned once; in graphs, where values are not known, every call
    must give the same tensor. The function is called once per index and results are stacked, so it
    may do anything, values included, and takes as long as the loop: a function of batches is
    faster. `chunk_size` therefore changes nothing. With randomness="different" each call draws
    numbers of its own, with "same" all draw the same; "error" refuses random ops.

    Raises OnefoldValueError where there is nothing to loop over, sizes differ, or a result that has
    the out_dim None depends on the index.

    >>> import onefold as flow
    >>> flow.vmap(flow.dot)(flow.ones(2, 3), flow.ones(2, 3))
    tensor([3., 3.])
    """
    if randomness not in _RANDOMNESS:
        raise OnefoldRuntimeError(
            f"vmap: randomness must be one of {_RANDOMNESS}, but got {randomness!r}"
        )

    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, form = tree_flatten(args)
        given = _spread(in_dims, args, "in_dims")
        dims = [_checked(dim, x) for dim, x in zip(given, leaves, strict=True)]
        size = _size(dims, leaves)
        rows = [
            [
                x if dim is None else tensor_ops.select(x, dim, index)
                for dim, x in zip(dims, leaves, strict=True)
            ]
            for index in range(size)
        ]
        calls = [tree_unflatten(row, form) for row in rows]
        results = _called(func, calls, kwargs, randomness)
        return _stacked(results, out_dims)

    return call


def _spread(dims: InDims, tree: Any, what: str) -> list[Any]:
    """The entries of a pytree of dims, one for each leaf of `tree`."""
    if dims is None or isinstance(dims, int):
        return [dims] * len(tree_flatten(tree)[0])
    if isinstance(dims, (tuple, list)) and isinstance(tree, (tuple, list)):
        if len(dims) == len(tree):
            pairs = zip(dims, tree, strict=True)
            return [dim for part, value in pairs for dim in _spread(part, value, what)]
    elif isinstance(dims, dict) and isinstance(tree, dict) and set(dims) == set(tree):
        return [dim for key in tree for dim in _spread(dims[key], tree[key], what)]
    raise OnefoldValueError(f"vmap: {what}={dims!r} does not have the structure of {tree!r}")


def _checked(dim: Any, x: Any) -> int | None:
    if isinstance(x, torch.Tensor):
        raise OnefoldTypeError(f"vmap: an argument must be an onefold Tensor, but got {kind_of(x)}")
    if dim is None or not isinstance(x, Tensor):
        if dim is not None and dim != 0:
            raise OnefoldValueError(
                f"vmap: in_dims has {dim!r} for a {type(x).__name__}, which has no dims; use None"
            )
        return None
    if isinstance(dim, bool) or not isinstance(dim, int) or not -x.ndim <= dim < x.ndim:
        raise OnefoldValueError(
            f"vmap: in_dims has {dim!r} for a tensor of shape {tuple(x.shape)}; allowed are None "
            f"and {-x.ndim} to {x.ndim - 1}"
        )
    return dim


def _size(dims: list[int | None], leaves: list[Any]) -> int:
    sizes = {x.shape[dim] for dim, x in zip(dims, leaves, strict=True) if dim is not None}
    if len(sizes) != 1 or 0 in sizes:
        raise OnefoldValueError(
            "vmap: the mapped dims must have one size, at least 1, but have "
            f"{sorted(sizes) if sizes else 'none: no tensor has an in_dim'}"
        )
    return int(sizes.pop())


def _called(
    func: Callable[..., Any], calls: list[Any], kwargs: dict[str, Any], randomness: str
) -> list[Any]:
    results = []
    start = default_generator.get_state()
    for args in calls:
        if randomness == "same":
            default_generator.set_state(start)
        results.append(func(*args, **kwargs))
        if randomness == "error" and default_generator.get_state() != start:
            default_generator.set_state(start)
            raise OnefoldRuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use "
                "the 'same' or 'different' randomness flags on vmap"
            )
    return results


def _stacked(results: list[Any], out_dims: InDims) -> Any:
    flat = [tree_flatten(result)[0] for result in results]
    form: TreeSpec = tree_flatten(results[0])[1]
    for leaf in flat[0]:
        if not isinstance(leaf, Tensor):
            raise OnefoldTypeError(
                f"vmap: the function must return Tensors, but got type {kind_of(leaf)}"
            )
    dims = _spread(out_dims, results[0], "out_dims")
    columns = zip(*flat, strict=True)
    return tree_unflatten(
        [
            _common(column) if dim is None else tensor_ops.stack(column, dim)
            for dim, column in zip(dims, columns, strict=True)
        ],
        form,
    )


def _common(column: tuple[Tensor, ...]) -> Tensor:
    """The result that every row has."""
    first = column[0]
    for other in column[1:]:
        if other is first:
            continue
        if interpreter.capturing() or not tensor_ops.equal(first, other):
            raise OnefoldValueError(
                "vmap: a result with out_dim None must be the same for every index, but the "
                "function gives different ones; give it a dim in out_dims"
            )
    return first
