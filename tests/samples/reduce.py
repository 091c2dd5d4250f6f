"""Samples of reductions and scans."""

import math

import torch
import torch.nn.functional as F
from torch_oracle import differentiates

from onefold.engine.meta import Meta
from onefold.engine.names import names
from onefold.engine.ops import argreduce, variance, vector_norm
from onefold.testing import Bo, I, Sample, T

C = torch.complex128
CPU = torch.device("cpu")
AMINMAX = differentiates(torch.aminmax, (2, 2))


def over_dims(name: str, several: bool = True, **kwargs: object) -> list[Sample]:
    """A reduction over all, one and several dims, kept or not, on even and uneven sizes."""
    dims = [0, -1, *([(0, 2), (1,)] if several else [])]
    return [
        Sample(name, (T(6, 4, 3),), dict(kwargs)),
        *[Sample(name, (T(6, 4, 3), dim), dict(kwargs)) for dim in dims],
        Sample(name, (T(5, 3), 0), dict(kwargs)),
        Sample(name, (T(5, 3), 1), {**kwargs, "keepdim": True}),
        Sample(name, (T(7),), dict(kwargs)),
        Sample(name, (T(),), dict(kwargs)),
    ]


def unfold(x: torch.Tensor, shape: tuple[int, ...], dim: int, keepdim: bool) -> torch.Tensor:
    return (x if keepdim else x.unsqueeze(dim)).expand(shape)


SUMS = [
    *over_dims("sum"),
    *over_dims("mean"),
    *over_dims("nansum"),
    *over_dims("nanmean"),
    *over_dims("prod", several=False),
    Sample("sum", (T(6, 4), (0, 1), True)),
    Sample("sum", (T(6, 4), [0, 1])),
    Sample("sum", (I(6, 4), 0)),
    Sample("sum", (Bo(6, 4), 0)),
    Sample("sum", (T(6, 4), 1), {"dtype": torch.float32}),
    Sample("sum", (T(0, 3), 0)),
    Sample("sum", (T(6, 4, dtype=C), 0)),
    Sample("mean", (T(0, 3), 1)),
    Sample("mean", (T(0, 3), 0)),
    Sample("mean", (T(6, 4), 1), {"dtype": torch.float32}),
    Sample("mean", (T(6, 4, dtype=C), 0)),
    Sample("mean", (T(5, 3, dtype=torch.float16), 0)),
    Sample("nansum", (torch.tensor([[1.0, math.nan], [2.0, 3.0], [math.nan, math.nan]]), 1)),
    Sample("nanmean", (torch.tensor([[1.0, math.nan], [2.0, 3.0], [math.nan, math.nan]]), 0)),
    Sample("nansum", (I(6, 4), 1)),
    Sample("prod", (I(6, 4, high=3), 1)),
    Sample("prod", (torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]]), 1)),
    Sample("prod", (torch.tensor([[1.0, 0.0, 2.0], [4.0, 5.0, 3.0]]),)),
    Sample("prod", (T(5, 3, dtype=C), 0)),
    Sample("prod", (T(5, 3, dtype=torch.float32), 0), {"dtype": torch.float64}, tol=1e-6),
    Sample("count_nonzero", (I(6, 4, high=3),)),
    Sample("count_nonzero", (I(5, 3, high=3), 0)),
    Sample("count_nonzero", (T(6, 4), (0, 1)), grad=False),
]

EXTREMA = [
    *over_dims("amax"),
    *over_dims("amin"),
    Sample("amax", (I(6, 4, high=3), 0)),
    Sample("amin", (Bo(5, 3), 0)),
    Sample("amax", (torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]], dtype=torch.float64), 1)),
    Sample("amax", (T(2, 3), 0)),
    Sample("amin", (torch.tensor([[1.0, math.nan], [2.0, 3.0], [4.0, 5.0]]), 0)),
    *[
        Sample(name, args)
        for name in ("max", "min")
        for args in (
            (T(6, 4),),
            (T(5, 3),),
            (torch.tensor([[1.0, 3.0], [3.0, 1.0]], dtype=torch.float64),),
            (T(6, 4), 0),
            (T(5, 3), 1, True),
            (T(5, 3), 0, True),
            (T(2, 3), 0),
            (T(6, 4, 3), -1),
            (T(6, 4, 3), 1),
            (T(), 0),
            (I(6, 4, high=3), 0),
            (Bo(6, 4), 1),
            (T(6, 4), T(4)),
        )
    ],
    *[
        Sample(name, args, grad=False)
        for name in ("argmax", "argmin")
        for args in (
            (T(6, 4),),
            (T(5, 3),),
            (T(5, 3), None, True),
            (T(6, 4), 0),
            (T(5, 3), 1),
            (T(5, 3), 0, True),
            (T(2, 3), 0),
            (T(6, 4, 3), -2),
            (I(6, 4, high=3), 0),
            (I(5, 3, high=3),),
            (T(),),
            (T(), 0),
            (torch.tensor([[1.0, math.nan], [2.0, 3.0], [4.0, 5.0]]), 0),
            (torch.tensor([[1.0, math.nan], [2.0, 3.0], [4.0, 5.0]]),),
        )
    ],
    Sample("aminmax", (T(6, 4),), grad=AMINMAX),
    Sample("aminmax", (T(5, 3),), {"dim": 0, "keepdim": True}, grad=AMINMAX),
    *[
        Sample(name, args)
        for name in ("any", "all")
        for args in (
            (Bo(6, 4),),
            (Bo(6, 4), 0),
            (Bo(5, 3), 1, True),
            (Bo(6, 4, 3), (0, 2)),
            (Bo(2, 3), 0),
            (Bo(0, 3), 0),
            (I(6, 4, high=2), 1),
            (I(5, 3, high=2, dtype=torch.uint8), 0),
            (torch.tensor(True),),
        )
    ],
    *[
        Sample(name, args)
        for name in ("median", "nanmedian")
        for args in (
            (T(6, 4),),
            (T(5, 3),),
            (T(6, 4), 0),
            (T(5, 3), 1, True),
            (torch.tensor([[1.0, math.nan, 2.0], [2.0, 3.0, 9.0]], dtype=torch.float64), 1),
        )
    ],
]

MOMENTS = [
    *over_dims("var")[:-2],
    *over_dims("std")[:-2],
    Sample("var", (T(6, 4), 0), {"correction": 0}),
    Sample("var", (T(5, 3), 0, False)),
    Sample("var", (T(5, 3), False)),
    Sample("std", (T(5, 3), (0, 1)), {"unbiased": False, "keepdim": True}),
    Sample("std", (T(5, 3), True)),
    Sample("std", (torch.ones(6, 4, dtype=torch.float64), 0)),
    Sample("var", (T(6, 4, dtype=C), 0)),
    Sample("var_mean", (T(5, 3), 0)),
    Sample("std_mean", (T(6, 4),)),
    Sample("std_mean", (T(6, 4), 1), {"correction": 0, "keepdim": True}),
    *[
        Sample("vector_norm", args, torch=torch.linalg.vector_norm)
        for order in (2, 1, 0, 3, 1.5, math.inf, -math.inf, -1)
        for args in ((T(6, 4), order), (T(5, 3), order, 0), (T(6, 4, 3), order, (0, -1), True))
    ],
    Sample("vector_norm", (T(5, 3, dtype=C), 2, 0), torch=torch.linalg.vector_norm),
    Sample("normalize", (T(6, 4),), torch=F.normalize),
    Sample("normalize", (T(5, 3), 1, 0), torch=F.normalize),
    Sample("normalize", (T(5, 4, 3),), {"p": 3.0, "dim": -1, "eps": 2.0}, torch=F.normalize),
    Sample("normalize", (T(5, 4), math.inf, -1), torch=F.normalize),
    Sample("vector_norm", (T(5, 3, dtype=C), 3, 0), torch=torch.linalg.vector_norm),
    Sample(
        "vector_norm", (torch.zeros(6, 4, dtype=torch.float64),), torch=torch.linalg.vector_norm
    ),
    Sample(
        "vector_norm",
        (T(6, 4, dtype=torch.float32),),
        {"dtype": torch.float64},
        torch=torch.linalg.vector_norm,
        tol=1e-6,
    ),
    Sample("norm", (T(6, 4),)),
    Sample("norm", (T(5, 3),), {"p": 1, "dim": 0}),
    Sample("norm", (T(5, 3),), {"p": "fro", "dim": (0, 1)}),
    Sample("logsumexp", (T(6, 4), 0)),
    Sample("logsumexp", (T(6, 4, dtype=C), 0)),
    Sample("logsumexp", (T(5, 3), 1, True)),
    Sample("logsumexp", (T(6, 4, 3), (0, 2))),
    Sample("logsumexp", (T(6, 4, 3), (0, 2), True)),
    Sample("logsumexp", (torch.tensor([[-math.inf, 1.0], [-math.inf, 700.0]]), 0)),
    Sample("logsumexp", (torch.tensor([[math.inf, 1.0], [0.0, 700.0]]), 0)),
]

SCANS = [
    *[
        Sample(name, args)
        for name in ("cumsum", "cumprod")
        for args in ((T(6, 4), 0), (T(5, 3), 1), (T(6, 4, 3), -2), (I(6, 4, high=3), 1), (T(), 0))
    ],
    Sample("cumprod", (torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]).double(), 1)),
    Sample("cumprod", (T(5, 3, dtype=C), 0)),
    Sample("cumprod", (T(0, 3), 0)),
    Sample("cumsum", (Bo(6, 4), 0)),
    Sample("cumsum", (T(6, 4, dtype=torch.float32), 0), {"dtype": torch.float64}, tol=1e-6),
    *[
        Sample(name, (I(6, 4, high=90), 0), {"dtype": dtype}, grad=False)
        for name in ("cumsum", "cumprod", "prod")
        for dtype in (torch.int32, torch.uint8)
    ],
    Sample("cumprod", (T(6, 4, dtype=torch.float32), 0), {"dtype": torch.float64}, tol=1e-6),
]

HELPERS = [
    *[
        Sample(
            "sum_to",
            (T(*whole),),
            torch=lambda x, shape=shape: x.sum_to_size(shape),
            call=lambda x, shape=shape: names.sum_to(x, Meta.of(shape, x.dtype, device=CPU)),
            id=f"sum_to {shape}",
        )
        for whole, shape in (
            ((6, 4), (6, 4)),
            ((6, 4), (4,)),
            ((6, 4), (1, 4)),
            ((5, 3), ()),
            ((5, 3, 2), (3, 1)),
            ((5, 1), (1, 1)),
        )
    ],
]

# Ops that only layouts reach: the forms that reductions take over split dims.
PARTS = [
    Sample(
        "first_index",
        (I(6, 4, high=3),),
        torch=lambda x: x.argmax(0),
        call=lambda x: argreduce._first_index(x, names.amax(x, 0), 0, False),
    ),
    Sample(
        "first_index",
        (I(5, 3, high=3),),
        torch=lambda x: x.argmin(1, True),
        call=lambda x: argreduce._first_index(x, names.amin(x, 1, True), 1, True),
    ),
    Sample(
        "first_index",
        (I(5, 3, high=9),),
        torch=lambda x: x.argmax(),
        call=lambda x: argreduce._first_index(x, names.amax(x), None, False),
    ),
    Sample(
        "variance_around",
        (T(6, 4),),
        torch=lambda x: x.var(0),
        call=lambda x: variance.variance_around(x, names.mean(x.detach(), 0, True), 0, 1, False),
    ),
    Sample(
        "variance_around",
        (T(5, 3),),
        torch=lambda x: x.var(1, keepdim=True),
        call=lambda x: variance.variance_around(x, names.mean(x.detach(), 1, True), 1, 1, True),
    ),
    Sample("root", (T(6, 4, low=0.5),), torch=torch.sqrt, call=variance._root),
    Sample(
        "norm_power",
        (T(6, 4),),
        torch=lambda x: x.abs().pow(3),
        call=lambda x: vector_norm._power(x, 3),
    ),
    Sample(
        "norm_root",
        (T(6, 4, low=0.5),),
        torch=lambda x: x.pow(1 / 3),
        call=lambda x: vector_norm._power_root(x, 3),
    ),
]

SAMPLES = [*SUMS, *EXTREMA, *MOMENTS, *SCANS, *HELPERS, *PARTS]
