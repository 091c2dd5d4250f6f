"""Samples of pad, flip, roll, repeat, tril, unfold and their kin."""

import torch
import torch.nn.functional as F

from onefold.testing import Bo, I, Sample, T

X = T(6, 4)
IMAGE = T(2, 3, 6, 5)

SAMPLES = [
    Sample("pad", (X, (1, 2))),
    Sample("pad", (X, (1, 2, 0, 3), "constant", 1.5)),
    Sample("pad", (X, (-1, 2, -2, -1))),
    Sample("pad", (I(6, 4), (0, 0, 2, 0), "constant", 3)),
    Sample("pad", (Bo(6, 4), (1, 0))),
    Sample("pad", (T(0, 4), (1, 1, 1, 0))),
    Sample("pad", (IMAGE, (1, 2, 2, 1), "reflect")),
    Sample("pad", (IMAGE, (1, 2, 2, 1), "replicate")),
    Sample("pad", (IMAGE, (5, 2, 2, 1), "circular")),
    Sample("pad", (T(3, 6), (4, 2), "reflect")),
    Sample("pad", (T(3, 6), (7, -2), "replicate")),
    Sample("pad", (T(2, 2, 3, 4, 5), (1, 1, 1, 1, 1, 1), "replicate")),
    Sample("flip", (X, (0,))),
    Sample("flip", (X, (0, -1))),
    Sample("fliplr", (X,)),
    Sample("flipud", (X,)),
    Sample("roll", (X, 2)),
    Sample("roll", (X, 1, 0)),
    Sample("roll", (X, (1, -2), (0, 1))),
    Sample("rot90", (X,)),
    Sample("rot90", (T(2, 6, 4), 3, (1, 2))),
    Sample("rot90", (X, 2)),
    Sample("rot90", (X, -4)),
    Sample("repeat", (X, 2, 3)),
    Sample("repeat", (X, (3, 1, 2))),
    Sample("repeat", (T(), 4)),
    Sample("repeat", (X, 0, 1)),
    Sample("tile", (X, (2,))),
    Sample("tile", (X, (2, 1, 1))),
    Sample("repeat_interleave", (X, 3)),
    Sample("repeat_interleave", (X, 2, 0)),
    Sample("repeat_interleave", (X, 2, -1)),
    Sample("repeat_interleave", (X, torch.tensor([2, 0, 1, 3]), 1)),
    Sample("repeat_interleave", (X, torch.tensor([2, 0, 1, 3]), 1), {"output_size": 6}),
    Sample("tril", (T(6, 6),)),
    Sample("tril", (T(3, 6, 4), 1)),
    Sample("triu", (T(6, 6), -1)),
    Sample("triu", (T(7, 5), 2)),
    Sample("triu", (Bo(6, 4),)),
    Sample("unfold", (X, 0, 3, 2), torch=lambda x, *a: x.unfold(*a)),
    Sample("unfold", (T(4, 6, 5), 1, 2, 1), torch=lambda x, *a: x.unfold(*a)),
    Sample("unfold", (X, -1, 4, 1), torch=lambda x, *a: x.unfold(*a)),
    Sample("im2col", (T(2, 3, 5, 6), 3), torch=F.unfold),
    Sample("im2col", (T(2, 3, 5), (2, 3)), {"stride": (1, 2)}, torch=F.unfold),
    Sample("im2col", (T(2, 2, 5, 4), (2, 3)), {"dilation": (2, 1), "padding": 1}, torch=F.unfold),
]
