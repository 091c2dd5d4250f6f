"""Batching rules of ops that name dims: of a row, they are one dim later in the tensor of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..engine.meta import Shape
from ..engine.ops.data_movement import wrap, wrap_all
from ..engine.ops.view import view
from ..engine.tensor import Tensor
from .batched_call import BatchedCall, NoRule, Results, Rule


def _after(dims: Shape, ndim: int) -> Shape:
    """Dims of a row of `ndim` dims, counted in the tensor of all rows."""
    return tuple([dim + 1 for dim in wrap_all(dims, ndim)])


# Reductions, softmax and scans: ops along the field `dim` of their attributes.


def _along(call: BatchedCall) -> Results:
    ndim, dim = call.rows[0].ndim, call.attrs.dim
    places = call.places()
    slots = call.all_at_front()
    everything = dim is None or dim == ()
    if everything and len(places) > 1 and ndim:
        raise NoRule
    if everything or not ndim:  # all elements of a row, as one dim
        for index in places:
            slots[index] = view(slots[index], (call.size, -1))
        dim = 1
    elif isinstance(dim, int):
        dim = wrap(dim, ndim) + 1
    else:
        dim = _after(dim, ndim)
    made = call.run(slots, *call.attrs._replace(dim=dim))
    return _whole(call, made)


def _whole(call: BatchedCall, made: Results) -> Results:
    if isinstance(made, Tensor):
        return call.whole(made)
    pairs = zip(made, call.metas, strict=False)
    return [view(y, (call.size, *meta.shape)) for y, meta in pairs]


_ALONG = (
    "sum mean softmax log_softmax softmax_grad log_softmax_grad amax amin max min any all var std "
    "variance_around logsumexp prod vector_norm cumsum cumprod recurrence first_index pick argmax "
    "argmin median nanmedian sort topk kthvalue"
)


def _spread(call: BatchedCall) -> Results:
    shape, dim, keepdim = call.attrs
    if not shape:
        return _unchanged(call)
    dims = tuple(range(len(shape))) if dim is None or dim == () else dim
    dims = (dims,) if isinstance(dims, int) else dims
    return call.run(call.slots, (call.size, *shape), _after(dims, len(shape)), keepdim)


def _unchanged(call: BatchedCall) -> Results:
    """The tensor itself."""
    x: Tensor = call.slots[0]
    return call.whole(x)


def _place(call: BatchedCall) -> Results:
    shape, dim, keepdim = call.attrs
    if dim is None or dim == () or not shape:
        raise NoRule
    dims = (dim,) if isinstance(dim, int) else dim
    slots = call.all_at_front()
    (one,) = _after(dims, len(shape))
    return call.run(slots, (call.size, *shape), one, keepdim)


def _sum_to(call: BatchedCall) -> Results:
    whole, shape = call.attrs
    ones = (1,) * (len(whole) - len(shape))
    return call.whole(call.run(call.slots, (call.size, *whole), (call.size, *ones, *shape)))


# Views, and other movements of one tensor.

Moved = Callable[[BatchedCall, int, Any], tuple[object, ...]]  # of the ndim and the attributes


def _moving(attributes: Moved) -> Rule:
    """The rule of an op of one tensor, by its attributes for the tensor of all rows."""

    def rule(call: BatchedCall) -> Results:
        given = attributes(call, call.rows[0].ndim, call.attrs)
        made: Results = call.run(call.slots, *given)
        return made

    return rule


def _expand(call: BatchedCall) -> Results:
    x: Tensor = call.slots[0]
    shape, sizes = call.rows[0].shape, call.attrs.sizes
    new = len(sizes) - len(shape)
    if new:
        x = view(x, (call.size, *[1] * new, *shape))
    return call.run([x], (-1, *sizes))


def _repeat(call: BatchedCall) -> Results:
    x: Tensor = call.slots[0]
    shape, times = call.rows[0].shape, call.attrs.sizes
    return call.run([view(x, (call.size, *[1] * (len(times) - len(shape)), *shape))], (1, *times))


def _transpose(call: BatchedCall) -> Results:
    if not call.rows[0].ndim:
        return _unchanged(call)
    return call.run(call.slots, *_after(tuple(call.attrs), call.rows[0].ndim))


def _slices(call: BatchedCall) -> Results:
    """A tensor and another, or none, that goes to a slice of it."""
    slots = [call.at_front(0), call.at_front(1)]
    return call.run(slots, (None, *call.attrs.entries))


def _pads(call: BatchedCall) -> Results:
    pads, *rest = call.attrs
    return call.run(call.slots, ((0, 0), *pads), *rest)


def _cat(call: BatchedCall) -> Results:
    given = [row for row in call.rows if row is not None]
    if len({row.ndim for row in given}) > 1:
        raise NoRule  # an empty vector among others
    slots = call.all_at_front()
    dim, sizes = call.attrs
    return call.run(slots, wrap(dim, given[0].ndim) + 1, sizes)


def _stack(call: BatchedCall) -> Results:
    given = next(row for row in call.rows if row is not None)
    slots = call.all_at_front()
    return call.run(slots, wrap(call.attrs.dim, given.ndim + 1) + 1)


RULES: dict[str, Rule] = {
    **dict.fromkeys(_ALONG.split(), _along),
    **dict.fromkeys(("spread", "spread_shares"), _spread),
    "place": _place,
    "sum_to": _sum_to,
    "view": _moving(lambda call, ndim, attrs: (call.size, *call.shape)),
    "transpose": _transpose,
    "permute": _moving(lambda call, ndim, attrs: (0, *_after(attrs.dims, ndim))),
    "expand": _expand,
    "repeat": _repeat,
    "squeeze": _moving(lambda call, ndim, attrs: (_after(attrs.dims, ndim),)),
    "unsqueeze": _moving(lambda call, ndim, attrs: (wrap(attrs.dim, ndim + 1) + 1,)),
    "diagonal": _moving(
        lambda call, ndim, attrs: (attrs.offset, *_after((attrs.dim1, attrs.dim2), ndim))
    ),
    "diag_embed": _moving(
        lambda call, ndim, attrs: (
            (call.size, *attrs.shape),
            attrs.offset,
            *_after((attrs.dim1, attrs.dim2), len(attrs.shape)),
        )
    ),
    "slice": _moving(lambda call, ndim, attrs: ((None, *attrs.entries),)),
    "slice_grad": _moving(
        lambda call, ndim, attrs: ((call.size, *attrs.shape), (None, *attrs.entries))
    ),
    "set_slice": _slices,
    "split": _moving(lambda call, ndim, attrs: (attrs.sizes, wrap(attrs.dim, ndim) + 1)),
    "unbind": _moving(lambda call, ndim, attrs: (wrap(attrs.dim, ndim) + 1,)),
    "flip": _moving(lambda call, ndim, attrs: (_after(attrs.dims, ndim),)),
    "roll": _moving(lambda call, ndim, attrs: (attrs.shifts, _after(attrs.dims, ndim))),
    "triu": _moving(lambda call, ndim, attrs: tuple(attrs)),
    "tril": _moving(lambda call, ndim, attrs: tuple(attrs)),
    "causal_fill": _moving(lambda call, ndim, attrs: tuple(attrs)),
    **dict.fromkeys(("pad", "pad_from_input", "pad_grad"), _pads),
    "cat": _cat,
    "stack": _stack,
}
