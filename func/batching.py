"""vmap: a function of rows as a function of batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..engine import interpreter
from ..engine.autocast import Autocast
from ..engine.generator import default_generator, record_draws
from ..engine.ops.data_movement import wrap
from ..engine.tensor import Tensor, tensor_ops
from ..errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError, kind_of
from .batching_interpreter import Batching

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
    result with out_dim None is returned once.

    The function is called once, with tensors of the shape of one row, and each op runs for all rows
    at once. Where that is not possible, because it reads values that differ between rows, draws
    random numbers, or changes tensors that it has not made, it is called for each row instead, and
    the results are stacked. So every function works. Tensors that it keeps elsewhere have no
    values. With `chunk_size` so many rows are computed at a time. With randomness="different" each
    call draws numbers of its own, with "same" all draw the same; "error" refuses random ops.

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
    if chunk_size is not None and chunk_size < 1:
        raise OnefoldValueError(
            f"vmap: chunk_size must be None or at least 1, but got {chunk_size}"
        )

    @wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        rows = Rows(func, args, kwargs, in_dims)
        found = None if rows.size == 1 else rows.in_chunks(chunk_size, out_dims)
        return rows.one_by_one(randomness, out_dims) if found is None else found[0]

    return call


class Rows:
    """A call of a function for the rows of its arguments."""

    def __init__(
        self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any], in_dims: InDims
    ) -> None:
        self.func, self.kwargs = func, kwargs
        self.leaves, self.form = tree_flatten(args)
        given = _spread(in_dims, args, "in_dims")
        self.dims = [_checked(dim, x) for dim, x in zip(given, self.leaves, strict=True)]
        self.size = _size(self.dims, self.leaves)
        self.batching: Batching | None = None

    def one_by_one(self, randomness: str, out_dims: InDims) -> Any:
        """The results of a call for each row, stacked."""
        rows = [
            [
                x if dim is None else tensor_ops.select(x, dim, index)
                for dim, x in zip(self.dims, self.leaves, strict=True)
            ]
            for index in range(self.size)
        ]
        calls = [tree_unflatten(row, self.form) for row in rows]
        return _stacked(_called(self.func, calls, self.kwargs, randomness), out_dims)

    def in_chunks(self, chunk_size: int | None, out_dims: InDims) -> tuple[Any] | None:
        """`at_once` for so many rows at a time."""
        if chunk_size is None or chunk_size >= self.size:
            return self.at_once(out_dims)
        whole, size, parts = self.leaves, self.size, []
        for start in range(0, size, chunk_size):
            self.size = min(chunk_size, size - start)
            self.leaves = [
                x if dim is None else tensor_ops.narrow(x, dim, start, self.size)
                for dim, x in zip(self.dims, whole, strict=True)
            ]
            found = self.at_once(out_dims)
            if found is None:
                break
            parts.append(found[0])
        self.leaves, self.size = whole, size
        return None if found is None else (_joined(parts, out_dims, tensor_ops.cat),)

    def at_once(self, out_dims: InDims) -> tuple[Any] | None:
        """The results of one call for all rows; None where the function must be called for each.

        An error is None too: a call for a row raises it with the shapes of the row.
        """
        current = interpreter.get_current()
        autocast = current if isinstance(current, Autocast) else None
        with record_draws() as draws:
            inner = current if autocast is None else autocast.inner
            self.batching = batching = Batching(inner, self.size, draws)
            try:
                batching.check_retained()
                given = [
                    x if dim is None else batching.argument(_rows_first(x, dim))
                    for dim, x in zip(self.dims, self.leaves, strict=True)
                ]
                top = batching if autocast is None else Autocast(batching, autocast.dtypes, False)
                with interpreter.using(top):
                    results = self.func(*tree_unflatten(given, self.form), **self.kwargs)
                if batching.refusal or draws or batching.has_hooks():
                    return None
                return (_gathered(batching, results, out_dims),)
            except Exception:  # noqa: BLE001 - a call for a row raises it again, if it is its own
                return None
            finally:
                batching.finish()


def _rows_first(x: Tensor, dim: int) -> Tensor:
    return tensor_ops.movedim(x, dim, 0) if dim % x.ndim else x


def _gathered(batching: Batching, results: Any, out_dims: InDims) -> Any:
    """The results for all rows of a function that was called once."""
    leaves, form = tree_flatten(results)
    dims = _spread(out_dims, results, "out_dims")
    taken = batching.shards_of_arguments()  # and what other results have
    made = []
    for dim, leaf in zip(dims, leaves, strict=True):
        value, mapped = batching.value_of(leaf)
        if batching.row_of(leaf) is not None and leaf.node is not None and value.node is None:
            raise batching.refused("a result requires a gradient that it has not made")
        if mapped and dim is None:
            raise batching.refused("a result has the out_dim None, but depends on the row")
        if not mapped:
            made.append(leaf if dim is None and batching.row_of(leaf) is None else value)
            if dim is not None:
                made[-1] = tensor_ops.stack([value] * batching.size, dim)
            continue
        y = tensor_ops.movedim(value, 0, dim) if wrap(dim, value.ndim) else value
        if y is not value or y.shared or id(y.shards) in taken:
            y = tensor_ops.clone(tensor_ops.contiguous(y))
        taken.add(id(y.shards))
        made.append(y)
    return tree_unflatten(made, form)


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
    for leaf in tree_flatten(results[0])[0]:
        if not isinstance(leaf, Tensor):
            raise OnefoldTypeError(
                f"vmap: the function must return Tensors, but got type {kind_of(leaf)}"
            )
    return _joined(results, out_dims, tensor_ops.stack)


def _joined(results: list[Any], out_dims: InDims, join: Callable[..., Tensor]) -> Any:
    """The results of several calls, joined along their out_dims."""
    columns = zip(*[tree_flatten(result)[0] for result in results], strict=True)
    dims = _spread(out_dims, results[0], "out_dims")
    joined = [
        _common(column) if dim is None else join(column, dim)
        for dim, column in zip(dims, columns, strict=True)
    ]
    return tree_unflatten(joined, tree_flatten(results[0])[1])


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
