"""Samples of reshape and its kin, and of the ops that move, add and drop dims."""

from onefold.engine.names import names
from onefold.testing import Bo, I, Sample, T

X = T(6, 4)


def method(name, *args, **kwargs):
    """A tensor method of torch and the op of its name."""
    return {
        "torch": lambda x, *a: getattr(x, name)(*a, *args, **kwargs),
        "call": lambda x, *a: getattr(names, name)(x, *a, *args, **kwargs),
        "id": f"{name}{args}",
    }


VIEWS = [
    ((6, 4), (24,)),
    ((6, 4), (-1,)),
    ((6, 4), (2, 3, 4)),
    ((6, 4), (2, 12)),
    ((6, 4), (6, 2, 2)),
    ((6, 4), (3, 2, -1)),
    ((6, 4), (1, 6, 1, 4)),
    ((4, 6, 3), (2, -1, 3)),
    ((4, 6, 3), (12, 6)),
    ((4, 6, 3), (4, 18)),
    ((2, 6, 5), (12, 5)),
    ((12,), (2, 6)),
    ((5, 7), (5, 7)),
    ((5, 4, 3), (5, 12)),
    ((7, 2, 2), (7, 4)),
    ((), (1,)),
    ((1, 1), ((),)),
    ((0, 4), (2, 0)),
    ((0, 4), (0, 2, 2)),
    ((1, 4, 1), (2, 2)),
]

EXPANDS = [
    ((1, 4), (6, 4)),
    ((6, 1), (-1, 4)),
    ((4,), (6, 4)),
    ((6, 4), (6, 4)),
    ((), (3, 2)),
    ((1,), (0,)),
    ((5, 1, 3), (2, 5, 4, 3)),
]

SAMPLES = [
    *[Sample("view", (T(*shape),), **method("view", *size)) for shape, size in VIEWS],
    Sample("view", (X,), **method("view", (3, 8))),
    Sample("view", (I(6, 4),), **method("view", 4, 6)),
    Sample("view", (Bo(6, 4),), **method("view", 4, 6)),
    Sample("reshape", (X, (3, 8))),
    Sample("reshape", (T(6, 4, 5), (6, -1))),
    Sample("view_as", (X, T(3, 8)), torch=lambda x, y: x.view_as(y)),
    Sample("reshape_as", (X, T(2, 12)), torch=lambda x, y: x.reshape_as(y)),
    Sample("flatten", (T(4, 6, 5),)),
    Sample("flatten", (T(4, 6, 5), 1)),
    Sample("flatten", (T(4, 6, 5), 0, 1)),
    Sample("flatten", (T(4, 6, 5), -1)),
    Sample("flatten", (T(),)),
    Sample("unflatten", (X, 0, (2, 3))),
    Sample("unflatten", (X, -1, (2, -1)), torch=lambda x, d, s: x.unflatten(d, s)),
    Sample("ravel", (T(6, 5),)),
    Sample("contiguous", (X,)),
    Sample("atleast_1d", (T(),)),
    Sample("atleast_2d", (T(6),)),
    Sample("atleast_2d", (T(),)),
    Sample("atleast_3d", (T(6),)),
    Sample("atleast_3d", (X,)),
    Sample("atleast_3d", (T(),)),
    Sample("atleast_1d", ((T(), X),)),
    Sample("pixel_shuffle", (T(2, 8, 3, 6), 2)),
    Sample("pixel_unshuffle", (T(2, 2, 6, 4), 2)),
    # Dims in another order.
    Sample("transpose", (X, 0, 1)),
    Sample("transpose", (T(6, 4, 5), 0, -1)),
    Sample("transpose", (T(6, 4, 5), -2, 1)),
    Sample("transpose", (T(), 0, -1)),
    Sample("transpose", (I(0, 4), 0, 1)),
    Sample("swapaxes", (X, 0, 1)),
    Sample("swapdims", (X, 1, 0)),
    Sample("permute", (T(6, 4, 5), (2, 0, 1))),
    Sample("permute", (T(6, 4, 5), (-1, 1, 0))),
    Sample("permute", (T(6, 4, 5),), **method("permute", 1, 2, 0)),
    Sample("permute", (Bo(6, 4), (1, 0))),
    Sample("movedim", (T(6, 4, 5), 0, 2)),
    Sample("movedim", (T(6, 4, 5), (0, -1), (1, 0))),
    Sample("moveaxis", (T(6, 4, 5), 1, 0)),
    Sample("t", (X,)),
    Sample("t", (T(5),)),
    Sample("t", (T(),)),
    Sample("reversed_dims", (X,), torch=lambda x: x.T),
    Sample("matrix_transpose", (T(3, 6, 4),), torch=lambda x: x.mT),
    Sample("adjoint", (T(3, 6, 4),)),
    Sample("batch_hermitian", (T(3, 6, 4),), torch=lambda x: x.mH),
    Sample("hermitian", (X,), torch=lambda x: x.H),
    # Dims of size 1.
    *[Sample("expand", (T(*shape),), **method("expand", *size)) for shape, size in EXPANDS],
    Sample("expand", (T(6, 1),), **method("expand", (6, 4))),
    Sample("expand_as", (T(6, 1), X), torch=lambda x, y: x.expand_as(y)),
    Sample("broadcast_to", (T(4), (6, 4))),
    Sample("broadcast_tensors", (T(6, 1), T(4))),
    Sample("squeeze", (T(6, 1, 4, 1),)),
    Sample("squeeze", (T(6, 1, 4, 1), 1)),
    Sample("squeeze", (T(6, 1, 4, 1), -1)),
    Sample("squeeze", (T(6, 1, 4, 1), (0, 1, 3))),
    Sample("squeeze", (T(6, 4), 0)),
    Sample("squeeze", (T(),)),
    Sample("unsqueeze", (X, 0)),
    Sample("unsqueeze", (X, 1)),
    Sample("unsqueeze", (X, -1)),
    Sample("unsqueeze", (T(), 0)),
    # Diagonals.
    Sample("diagonal", (X,)),
    Sample("diagonal", (T(6, 4, 5), 1, 0, 2)),
    Sample("diagonal", (T(3, 6, 4), -2, -1, 1)),
    Sample("diag", (T(5),)),
    Sample("diag", (T(5), -1)),
    Sample("diag", (X, 1)),
    Sample("diag_embed", (T(6, 4),)),
    Sample("diag_embed", (T(6, 4), 1, 0, 2)),
]
