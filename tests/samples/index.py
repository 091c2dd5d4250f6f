"""Samples of slices, index tensors, gather, scatter, embedding and sorting."""

import torch
import torch.nn.functional as F

from onefold.engine.names import names
from onefold.testing import Bo, I, Sample, T

X = T(6, 4)
Y = T(6, 4, 5)
PLACES = torch.tensor([[5, 0, 2, 1], [3, 4, 0, 2], [1, 5, 4, 0]])  # none twice in a column


def at(*index):
    """x[index] of torch and of the op; tensors of the sample fill the places marked `...`."""

    def get(x, *tensors):
        return x[_filled(index, tensors)]

    def call(x, *tensors):
        return names.getitem(x, _filled(index, tensors))

    return {"torch": get, "call": call, "id": f"getitem{_text(index)}"}


def put(*index):
    """x[index] = value, as a function."""

    def set_torch(x, *rest):
        y = x.clone()
        *tensors, value = rest
        y[_filled(index, tensors)] = value
        return y

    def call(x, *rest):
        *tensors, value = rest
        return names.setitem(x, _filled(index, tensors), value)

    return {"torch": set_torch, "call": call, "id": f"setitem{_text(index)}"}


class Here:
    """The place of the sample's next tensor in an index."""

    def __repr__(self):
        return "tensor"


HERE = Here()
ALL = slice(None)


def _filled(index, tensors):
    rest = iter(tensors)
    found = tuple(next(rest) if item is HERE else item for item in index)
    return found[0] if len(found) == 1 else found


def _text(index):
    return str(index).replace("slice(None, None, None)", ":")


def by_frequency(index, weight, **kwargs):
    """F.embedding with scale_grad_by_freq, which torch leaves out of the second derivative."""
    count = torch.bincount(index.flatten(), minlength=len(weight)).clamp(min=1).unsqueeze(1)
    scaled = weight / count
    return F.embedding(index, scaled + (weight - scaled).detach())


BASIC = [
    (0,),
    (-1,),
    (slice(1, 4),),
    (slice(None, None, 2),),
    (slice(-3, None),),
    (slice(4, 2),),
    (ALL,),
    (...,),
    (2, 1),
    (slice(1, 5, 3), 2),
    (ALL, slice(1, 3)),
    (..., 0),
    (None,),
    (ALL, None, 1),
    (None, 2, ..., None),
    (slice(0, 6), slice(3, 4)),
    (slice(2, 6), ALL, slice(0, 4, 2)),
]

# (index, the tensors in it, shape of x)
ADVANCED = [
    ((HERE,), (I(3, high=6),), (6, 4)),
    ((HERE,), (I(2, 6, high=6, low=-6),), (6, 4)),
    ((ALL, HERE), (I(6, high=4),), (6, 4)),
    ((HERE, HERE), (I(6, high=6), I(6, high=4)), (6, 4)),
    ((HERE, HERE), (I(3, 1, high=6), I(4, high=4)), (6, 4, 5)),
    ((HERE, ALL, HERE), (I(6, high=6), I(6, high=5)), (6, 4, 5)),
    ((ALL, HERE, HERE), (I(6, high=4), I(6, high=5)), (6, 4, 5)),
    ((slice(1, 4), HERE), (I(3, high=4),), (6, 4)),
    ((0, ALL, HERE), (I(3, high=5),), (6, 4, 5)),
    ((HERE, None, 1), (I(3, high=6),), (6, 4, 5)),
    ((HERE,), (torch.tensor(2),), (6, 4)),
    ((HERE,), (torch.tensor(2),), (6,)),
    ((HERE, HERE), (torch.tensor(5), torch.tensor(-1)), (6, 4)),
    ((HERE, ALL, HERE), (torch.tensor(2), I(3, high=5)), (6, 4, 5)),
    (([0, 2, -1],), (), (6, 4)),
    ((ALL, [1, 1, 0]), (), (6, 4)),
    (([0, 1], [2, 3]), (), (6, 4)),
    ((HERE,), (I(0, high=6),), (6, 4)),
    (([],), (), (6, 4)),
]

MASKS = [
    ((HERE,), (Bo(6),), (6, 4)),
    ((HERE,), (Bo(6, 4),), (6, 4)),
    ((ALL, HERE), (Bo(4),), (6, 4)),
    ((HERE, 0), (Bo(6),), (6, 4)),
    ((..., HERE), (Bo(5),), (6, 4, 5)),
    ((True,), (), (6, 4)),
    ((False, 0), (), (6, 4)),
]

SAMPLES = [
    *[Sample("getitem", (Y if len(i) > 2 else X,), **at(*i)) for i in BASIC],
    *[Sample("getitem", (T(*shape), *tensors), **at(*i)) for i, tensors, shape in ADVANCED],
    *[Sample("getitem", (T(*shape), *tensors), **at(*i)) for i, tensors, shape in MASKS],
    Sample("getitem", (Bo(6, 4),), **at(slice(1, 4), 2)),
    Sample("getitem", (Bo(6, 4), I(5, high=6)), **at(HERE)),
    Sample("getitem", (T(7, 5),), **at(slice(2, 6), slice(None, None, 3))),
    Sample("getitem", (I(7, 5),), **at(3)),
    Sample("narrow", (X, 0, 1, 3)),
    Sample("narrow", (X, -1, -2, 2)),
    Sample("narrow", (X, 1, 0, 4)),
    Sample("select", (X, 0, 2)),
    Sample("select", (X, 1, -1)),
    Sample("setitem", (X, T(4)), **put(0)),
    Sample("setitem", (X, T()), **put(slice(1, 4))),
    Sample("setitem", (X, T(6, 2)), **put(ALL, slice(0, 3, 2))),
    Sample("setitem", (X, T(1, 1, 4)), **put(slice(0, 2))),
    Sample("setitem", (X, X), **put(...), grad=False),
    Sample("setitem", (Y, T(4, 1)), **put(2, None, ..., slice(0, 2)), grad=False),
    Sample("setitem", (X, 2.5), **put(slice(2, 4), 1)),
    Sample("setitem", (I(6, 4), 7), **put(ALL, 0)),
    Sample("setitem", (X, torch.tensor([4, 0, 2]), T(3, 4)), **put(HERE)),
    Sample("setitem", (X, torch.tensor([3, 1]), T(2)), **put(ALL, HERE)),
    Sample("setitem", (Y, torch.tensor([3, 1]), T(2, 5)), **put(slice(1, 3), HERE)),
    Sample("setitem", (Y, torch.tensor([3, 1]), T(2, 4)), **put(HERE, ALL, [0, 2])),
    Sample("setitem", (Y, torch.tensor(1), T(4)), **put(HERE, ALL, 2)),
    Sample("setitem", (Y, torch.tensor(1), torch.tensor([0, 3]), T(2, 5)), **put(HERE, HERE)),
    Sample("setitem", (X, Bo(6, 4), 0.5), **put(HERE)),
    Sample("setitem", (X, Bo(6), T()), **put(HERE)),
    Sample("setitem", (X, Bo(6), T(4)), **put(HERE)),
    # Along one dim.
    Sample("gather", (X, 0, I(3, 4, high=6))),
    Sample("gather", (X, 1, I(6, 2, high=4))),
    Sample("gather", (X, -1, I(3, 7, high=4))),
    Sample("gather", (T(), 0, torch.tensor(0))),
    Sample("gather", (Y, 1, I(6, 3, 5, high=4))),
    Sample("take_along_dim", (X, I(6, 1, high=4), 1)),
    Sample("take_along_dim", (T(1, 4), I(6, 2, high=4), 1)),
    Sample("take_along_dim", (X, I(5, high=24))),
    Sample("take", (X, I(2, 3, high=24))),
    Sample("index_select", (X, 0, I(5, high=6))),
    Sample("index_select", (X, 1, I(3, high=4))),
    Sample("index_add", (X, 0, I(5, high=6), T(5, 4))),
    Sample("index_add", (X, 1, I(3, high=4), T(6, 3)), {"alpha": 2}),
    Sample("index_copy", (X, 0, torch.tensor([5, 0]), T(2, 4))),
    Sample("index_fill", (X, 1, torch.tensor([3, 0]), 1.5)),
    Sample("index_put", (X, (I(5, high=6), I(5, high=4)), T(5), True)),
    Sample("index_put", (X, (torch.tensor([4, 1]),), T(4))),
    Sample("scatter", (X, 0, PLACES, T(3, 4))),
    Sample("scatter", (X, 0, PLACES, X), grad=False),
    Sample("scatter", (X, 1, torch.tensor([[0, 2], [3, 1], [1, 0]]), T(3, 2))),
    Sample("scatter", (X, 1, torch.tensor([[0, 2], [3, 1], [1, 0]]), 2.5)),
    Sample("scatter", (X, 0, I(6, 4, high=6), 0.0)),
    Sample("scatter", (I(6, 4), 1, I(6, 4, high=4), 1)),
    Sample("scatter_add", (X, 0, I(6, 4, high=6), X)),
    Sample("scatter_add", (X, 1, I(3, 7, high=4), T(3, 7))),
    Sample("scatter_add", (X, 1, I(3, 7, high=4), T(6, 7)), grad=False),
    Sample("scatter_reduce", (X, 0, I(6, 4, high=6), X, "sum")),
    Sample("scatter_reduce", (X, 0, I(6, 4, high=6), T(6, 4), "amax")),
    Sample("scatter_reduce", (X, 0, I(6, 4, high=6), T(6, 4), "prod")),
    Sample("scatter_reduce", (X, 1, I(6, 3, high=4), T(6, 3), "mean"), {"include_self": False}),
    Sample("index_reduce", (X, 0, I(5, high=6), T(5, 4), "amin"), {"include_self": False}),
    Sample("index_reduce", (X, 1, I(3, high=4), T(6, 3), "mean")),
    Sample("masked_select", (X, Bo(6, 4))),
    Sample("masked_select", (X, Bo(4))),
    Sample("masked_scatter", (X, Bo(6, 4), T(24))),
    Sample("nonzero", (I(6, 4, high=2),)),
    Sample("nonzero", (I(6, 4, high=2),), {"as_tuple": True}),
    Sample("argwhere", (Bo(6),)),
    Sample("one_hot", (I(6, high=4), 4)),
    Sample("one_hot", (I(2, 6, high=4),)),
    # Rows of a weight.
    Sample("embedding", (I(6, high=8), T(8, 4)), torch=F.embedding),
    Sample("embedding", (I(6, 3, high=7), T(7, 5)), {"padding_idx": 2}, torch=F.embedding),
    Sample("embedding", (I(6, high=7), T(7, 4)), {"padding_idx": -1}, torch=F.embedding),
    Sample(
        "embedding", (I(4, 6, high=5), T(5, 6)), {"scale_grad_by_freq": True}, torch=by_frequency
    ),
    Sample("embedding", (I(0, high=5), T(5, 6)), torch=F.embedding, grad=False),
    # In order.
    Sample("sort", (X,)),
    Sample("sort", (X, 0, True)),
    Sample("sort", (T(),)),
    Sample("argsort", (X, 1)),
    Sample("msort", (X,)),
    Sample("topk", (X, 2)),
    Sample("topk", (X, 3, 0, False)),
    Sample("topk", (T(5, 7), 7, -1)),
    Sample("kthvalue", (X, 2)),
    Sample("kthvalue", (X, 3, 0, True)),
    Sample("unique", (I(6, 4),)),
    Sample("unique", (I(6, 4), True, True, True)),
]
