"""How arguments are cut into micro-batches, and how outputs of micro-batches are joined."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from ...engine.ops.cat_split import cat
from ...engine.ops.slicing import narrow
from ...engine.tensor import Tensor
from ...errors import OnefoldTypeError, OnefoldValueError
from ...nn.flex_attention import BlockMask

__all__ = ["TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks", "sum_reducer"]


class TensorChunkSpec:
    """That a tensor is cut along the dim `split_dim`, or outputs are joined along it.

    >>> TensorChunkSpec.from_dict({"ids": 0, "mask": 1})
    {'ids': TensorChunkSpec(0), 'mask': TensorChunkSpec(1)}
    """

    def __init__(self, split_dim: int) -> None:
        self.split_dim = split_dim

    def __repr__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims: tuple[Any, ...]) -> tuple[Any, ...]:
        """The specs for a tuple of dims, which may be nested."""
        made: tuple[Any, ...] = tree_map(TensorChunkSpec, chunk_dims)
        return made

    @staticmethod
    def from_dict(chunk_dims: dict[str, Any]) -> dict[str, Any]:
        """The specs for a dict of dims, which may be nested."""
        made: dict[str, Any] = tree_map(TensorChunkSpec, chunk_dims)
        return made


class _Replicate:
    """That every micro-batch gets the whole value."""

    def __repr__(self) -> str:
        return "_Replicate()"


class _CustomReducer:
    """That outputs of micro-batches become one by a function, which begins with `init_value`."""

    def __init__(self, init_value: Any, reduce_fn: Callable[[Any, Any], Any]) -> None:
        self.init_value = init_value
        self.reduce_fn = reduce_fn


class _LossReducer(_CustomReducer):
    """The same, of a loss."""


sum_reducer = _LossReducer(0.0, operator.add)


def split_args_kwargs_into_chunks(
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    chunks: int,
    args_chunk_spec: tuple[Any, ...] | None = None,
    kwargs_chunk_spec: dict[str, Any] | None = None,
) -> tuple[list[tuple[Any, ...]], list[dict[str, Any]]]:
    """The arguments of each of `chunks` micro-batches.

    Without specs tensors are cut along dim 0, and every micro-batch gets the whole of other values.
    The first micro-batches are one larger where the size does not divide. Raises OnefoldValueError
    for a size below `chunks`, and for specs that do not fit the arguments.

    >>> import onefold as flow
    >>> args, kwargs = split_args_kwargs_into_chunks((flow.ones(3, 2), "x"), None, 2)
    >>> [(tuple(x.shape), name) for x, name in args]
    [((2, 2), 'x'), ((1, 2), 'x')]
    """
    of_args = split_tree(tuple(args), args_chunk_spec, chunks, "args", "args_chunk_spec")
    of_kwargs = split_tree(kwargs or {}, kwargs_chunk_spec, chunks, "kwargs", "kwargs_chunk_spec")
    return of_args, of_kwargs


def split_tree(value: Any, spec: Any, chunks: int, name: str, of_spec: str) -> list[Any]:
    """A tree of values in `chunks` parts; `name` and `of_spec` say in errors what they are."""
    leaves, structure = tree_flatten(value)
    if spec is None:
        specs = [TensorChunkSpec(0) if _is_cut(leaf) else _Replicate() for leaf in leaves]
    else:
        specs = tree_flatten(_in_order(spec, value, of_spec))[0]
    if len(specs) != len(leaves):
        raise OnefoldValueError(
            f"{of_spec} has {len(specs)} specs, but {name} {len(leaves)} values: give one for each "
            "value, as in TensorChunkSpec.from_tuple((0, 0))"
        )
    parts = [
        _split_leaf(leaf, each, chunks, name, of_spec)
        for leaf, each in zip(leaves, specs, strict=True)
    ]
    return [tree_unflatten([part[i] for part in parts], structure) for i in range(chunks)]


def _in_order(spec: Any, value: Any, of_spec: str) -> Any:
    """A tree of specs, whose dicts have their keys in the order of the values' dicts.

    Raises OnefoldValueError where they have other keys.
    """
    if isinstance(spec, dict) and isinstance(value, dict):
        if spec.keys() != value.keys():
            raise OnefoldValueError(
                f"{of_spec} has specs for {', '.join(map(repr, spec))}, but the values are "
                f"{', '.join(map(repr, value))}: give one for each value, by its name"
            )
        return {key: _in_order(spec[key], inner, of_spec) for key, inner in value.items()}
    listed = isinstance(spec, (list, tuple)) and isinstance(value, (list, tuple))
    if listed and len(spec) == len(value):
        made = [_in_order(*pair, of_spec) for pair in zip(spec, value, strict=True)]
        return made if isinstance(spec, list) else tuple(made)
    return spec


def _is_cut(leaf: object) -> bool:
    return isinstance(leaf, (Tensor, BlockMask))


def _split_leaf(leaf: Any, spec: Any, chunks: int, name: str, of_spec: str) -> Sequence[Any]:
    if spec is _Replicate or isinstance(spec, _Replicate):
        return [leaf] * chunks
    if not isinstance(spec, TensorChunkSpec):
        raise OnefoldTypeError(
            f"{of_spec} must hold TensorChunkSpec(dim) for each value that is cut, but has {spec!r}"
        )
    if isinstance(leaf, BlockMask) and leaf.kv_num_blocks.shape[0] == 1:
        return [leaf] * chunks
    if not isinstance(leaf, Tensor):
        raise OnefoldTypeError(
            f"{of_spec} has {spec} for a value of {name} that is no tensor but "
            f"{type(leaf).__name__}: pass a tensor, or a mask that is made with B=None"
        )
    if not -leaf.ndim <= spec.split_dim < leaf.ndim:
        raise OnefoldValueError(
            f"a tensor of {name} of shape {tuple(leaf.shape)} has no dim {spec.split_dim} along "
            f"which to cut it into micro-batches: give it another spec in {of_spec}, or pass what "
            "all micro-batches share as a number"
        )
    size = leaf.shape[spec.split_dim]
    if size < chunks:
        raise OnefoldValueError(
            f"a tensor of {name} of shape {tuple(leaf.shape)} cannot be cut into {chunks} "
            f"micro-batches along dim {spec.split_dim}, whose size is {size}: pass a larger batch, "
            "or make the schedule with fewer n_microbatches"
        )
    least, more = divmod(size, chunks)
    sizes = [least + (i < more) for i in range(chunks)]
    # Each a view of its own: backward of one micro-batch frees nothing of another.
    starts = [sum(sizes[:i]) for i in range(chunks)]
    return [narrow(leaf, spec.split_dim, *place) for place in zip(starts, sizes, strict=True)]


def merge_chunks(chunks: Sequence[Any], chunk_spec: Any) -> Any:
    """The outputs of micro-batches as one, joined along dim 0 or as `chunk_spec` says.

    Raises OnefoldValueError for outputs that cannot be joined.

    >>> import onefold as flow
    >>> merge_chunks([flow.ones(2, 3), flow.ones(1, 3)], None).shape
    torch.Size([3, 3])
    """
    flat = [tree_flatten(chunk)[0] for chunk in chunks]
    if chunk_spec is None:
        structure = tree_flatten(chunks[0])[1]
        specs = [TensorChunkSpec(0) if isinstance(x, Tensor) else None for x in flat[0]]
    else:
        specs, structure = tree_flatten(_in_order(chunk_spec, chunks[0], "output_merge_spec"))
    if any(len(leaves) != len(specs) for leaves in flat):
        raise OnefoldValueError(
            f"the last stage returned {', '.join(str(len(leaves)) for leaves in flat)} values for "
            f"the micro-batches, which cannot be joined: return {len(specs)} values for each, as "
            f"output_merge_spec says, or pass return_outputs=False to step()"
        )
    merged = [
        _merge(values, spec) for values, spec in zip(zip(*flat, strict=True), specs, strict=True)
    ]
    return tree_unflatten(merged, structure)


def _merge(values: Sequence[Any], spec: Any) -> Any:
    if isinstance(spec, _CustomReducer):
        total = spec.init_value
        for value in values:
            total = spec.reduce_fn(total, value)
        return total
    if isinstance(spec, TensorChunkSpec):
        if all(isinstance(x, Tensor) and x.ndim for x in values):
            return cat(list(values), spec.split_dim)
        raise OnefoldValueError(
            f"outputs of the last stage such as {values[0]!r} cannot be joined along dim "
            f"{spec.split_dim}: pass return_outputs=False to step(), or an output_merge_spec with "
            "sum_reducer"
        )
    if any(value != values[0] for value in values):
        raise OnefoldValueError(
            "outputs of the last stage that are no tensors differ from micro-batch to micro-batch, "
            f"{', '.join(map(repr, values))}: pass return_outputs=False to step()"
        )
    return values[0]
