"""Folding: rows are joined along a dim of each tensor that a signature of the op splits.

A signature says that the op gives the parts of its results from the parts of its inputs. That holds
for shards of ranks, and as well for rows, if the kernel does not depend on where a shard lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..engine.meta import Meta
from ..engine.ops.dims import expand
from ..engine.ops.pool import PoolGrad
from ..engine.ops.torch_op import TorchOp
from ..engine.sbp import Sbp
from ..engine.signature import Axis, Signature
from ..engine.tensor import Tensor
from .batched_call import BatchedCall, NoRule, Results, folded, unfolded

# Ops whose `bind` looks at the sizes of a shard, but not at its offset.
_BY_SIZE = frozenset(
    "convolution max_pool max_pool_take adaptive_max_pool adaptive_max_pool_take avg_pool "
    "avg_pool3d adaptive_avg_pool adaptive_avg_pool3d max_pool_grad adaptive_max_pool_grad "
    "avg_pool_grad avg_pool3d_grad adaptive_avg_pool_grad adaptive_avg_pool3d_grad lp_pool "
    "lp_pool_grad interpolate interpolate_grad".split()
)


def fold(call: BatchedCall) -> Results:
    """The results by folding rows into dims; raises NoRule where no signature allows it."""
    op = call.op
    if op.depends_on_position and op.name not in _BY_SIZE and not isinstance(op, TorchOp):
        raise NoRule
    places = call.places()
    metas = [_plain(call.rows[i]) for i in places]
    if any(0 in meta.shape for meta in (*metas, *call.metas)):
        raise NoRule
    mapped = [call.mapped[i] for i in places]
    for signature in _candidates(call, places, metas, mapped):
        sizes = [
            _times(meta, sbp, call.size) for meta, sbp in zip(metas, signature.inputs, strict=True)
        ]
        attrs = _attributes(call, signature)
        if not _holds(call, places, sizes, attrs, signature):
            continue
        slots = list(call.slots)
        for i, has_rows, sbp in zip(places, mapped, signature.inputs, strict=True):
            if sbp.kind == "S":
                x = slots[i]
                x = x if has_rows else expand(x, (call.size, *x.shape))
                slots[i] = folded(x, sbp.dim)
        made = call.run(slots, *attrs)
        outputs = [made] if isinstance(made, Tensor) else made
        parts = zip(outputs, signature.outputs, strict=False)
        found = [unfolded(y, sbp.dim, call.size) for y, sbp in parts]
        return found[0] if isinstance(made, Tensor) else found
    raise NoRule


def _plain(meta: Meta) -> Meta:
    """A local meta: rules look at the layouts of dims of size 1."""
    return Meta.of(meta.shape, meta.dtype, device=torch.device(meta.device_type))


def _arguments(
    call: BatchedCall, places: Sequence[int], metas: Sequence[Meta], attrs: Any
) -> list[Any]:
    """The arguments of `infer` and `rule` for tensors of these metas."""
    found = [None if slot is None else slot for slot in call.slots]
    for i, meta in zip(places, metas, strict=True):
        found[i] = meta
    return [*found, *call.op.attribute_args(attrs)]


def _candidates(
    call: BatchedCall, places: Sequence[int], metas: Sequence[Meta], mapped: Sequence[bool]
) -> Iterator[Signature]:
    """The signatures by which rows might be folded, those that repeat no input first."""
    axis = Axis(1, (frozenset(),) * len(metas), tuple([tuple(meta.shape) for meta in metas]))
    rule = call.op.rule(axis, *_arguments(call, places, metas, call.attrs))
    fitting = [
        signature
        for signature in rule
        if all(sbp.kind == "S" for sbp in signature.outputs)
        and all(sbp.kind in "SB" for sbp in signature.inputs)
        and all(sbp.kind == "S" for sbp, rows in zip(signature.inputs, mapped, strict=True) if rows)
    ]

    def repeated(signature: Signature) -> int:
        pairs = zip(signature.inputs, mapped, strict=True)
        return sum(sbp.kind == "S" and not rows for sbp, rows in pairs)

    return iter(sorted(fitting, key=repeated))


def _times(meta: Meta, sbp: Sbp, size: int) -> Meta:
    """The meta with `size` rows folded into the dim that is split."""
    if sbp.kind != "S":
        return meta
    shape = list(meta.shape)
    shape[sbp.dim] *= size
    return meta.like(shape)


def _attributes(call: BatchedCall, signature: Signature) -> Any:
    """The attributes, of which one may be the shape of the result."""
    shape = getattr(call.attrs, "shape", None)
    if shape is None or tuple(shape) != call.shape or not isinstance(call.op, PoolGrad):
        return call.attrs
    whole = _times(call.metas[0], signature.outputs[0], call.size).shape
    return call.attrs._replace(shape=tuple(whole))


def _holds(
    call: BatchedCall,
    places: Sequence[int],
    metas: Sequence[Meta],
    attrs: Any,
    signature: Signature,
) -> bool:
    """Whether the signature is one of the op on the folded tensors, with the folded results."""
    arguments = _arguments(call, places, metas, attrs)
    inferred = call.op.infer(*arguments)
    outputs = inferred if isinstance(inferred, tuple) else (inferred,)
    for y, row, sbp in zip(outputs, call.metas, signature.outputs, strict=True):
        if y.shape != _times(row, sbp, call.size).shape:
            return False
    whole = tuple([tuple(meta.shape) for meta in metas])
    axis = Axis(call.size, (frozenset(),) * len(metas), whole)
    return signature in call.op.rule(axis, *arguments)
