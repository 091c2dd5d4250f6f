"""Samples of joining and parting: cat, stack, split, chunk, unbind, meshgrid."""

import torch

from onefold.testing import Bo, I, Sample, T

X = T(6, 4)
F32 = T(6, 2, dtype=torch.float32)

SAMPLES = [
    Sample("cat", ([X, T(3, 4)],)),
    Sample("cat", ([X, X, X], 1)),
    Sample("cat", ([X, T(6, 1)], -1)),
    Sample("cat", ([X],)),
    Sample("cat", ([X, T(0)],)),
    Sample("cat", ([T(0, 4), X], 0)),
    Sample("cat", ([I(6, 4), I(6, 3)], 1)),
    Sample("cat", ([Bo(6), Bo(3)], 0)),
    Sample("cat", ([X, F32], 1), tol=1e-5),
    Sample("concat", ((X, X), 0)),
    Sample("concatenate", ((T(5, 3), T(5, 2)), 1)),
    Sample("stack", ([X, X],)),
    Sample("stack", ([X, X, X], 1)),
    Sample("stack", ([X, X], -1)),
    Sample("stack", ([T(), T()],)),
    Sample("stack", ([Bo(6, 2), Bo(6, 2)],)),
    Sample("hstack", ([X, X],)),
    Sample("hstack", ([T(6), T(4)],)),
    Sample("vstack", ([T(6), T(6)],)),
    Sample("row_stack", ([X, T(4)],), torch=torch.vstack),
    Sample("dstack", ([X, X],)),
    Sample("column_stack", ([T(6), X],)),
    Sample("split", (X, 2)),
    Sample("split", (X, 4)),
    Sample("split", (X, [1, 3], 1)),
    Sample("split", (X, 6)),
    Sample("split", (X, 3, -1)),
    Sample("split", (T(0, 4), 2)),
    Sample("split", (I(6, 4), [2, 4])),
    Sample("split_with_sizes", (X, [1, 0, 5])),
    Sample("chunk", (X, 3)),
    Sample("chunk", (X, 4)),
    Sample("chunk", (X, 2, 1)),
    Sample("chunk", (T(5, 6), 3, -1)),
    Sample("tensor_split", (T(7, 4), 3)),
    Sample("tensor_split", (T(7, 4), (2, 5))),
    Sample("tensor_split", (T(7, 4), (5, 2))),
    Sample("hsplit", (X, 2)),
    Sample("vsplit", (X, [1, 3])),
    Sample("unbind", (T(3, 6),)),
    Sample("unbind", (T(6, 4), -1)),
    Sample("unbind", (T(1, 4),)),
    Sample("meshgrid", (T(6), T(4)), {"indexing": "ij"}),
    Sample("meshgrid", (T(6), T(4), T(3)), {"indexing": "xy"}),
]
