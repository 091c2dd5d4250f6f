"""Samples of matrix products."""

import torch

from onefold.engine.names import names
from onefold.engine.ops.matmul import WIDENED, product_nt
from onefold.testing import I, Sample, T


def rows_tn(a, b):
    return torch.einsum("abm,abn->mn", a, b)


def widened(product, function, *shapes):
    """A product that is written in a wider dtype."""
    entry = WIDENED[product]
    return Sample(
        entry.__name__,
        (*(T(*shape, dtype=torch.float32) for shape in shapes), torch.float64),
        call=entry,
        torch=lambda a, b, dtype: function(a, b).to(dtype),
        id=entry.__name__,
        tol=1e-5,
    )


def of(name: str, *shapes: tuple[int, ...], **kwargs: object) -> Sample:
    return Sample(name, tuple(T(*shape) for shape in shapes), dict(kwargs))


SAMPLES = [
    of("mm", (6, 4), (4, 2)),
    of("mm", (5, 7), (7, 3)),
    of("mm", (0, 4), (4, 2)),
    of("mm", (3, 0), (0, 2)),
    Sample("mm", (I(6, 4), I(4, 3))),
    of("bmm", (4, 6, 2), (4, 2, 6)),
    of("bmm", (3, 5, 7), (3, 7, 5)),
    Sample(
        "chain_matmul",
        (T(6, 4), T(4, 3), T(3, 2)),
        torch=lambda *matrices: torch.linalg.multi_dot(matrices),
    ),
    *[Sample("matrix_power", (T(3, 4, 4), n)) for n in (0, 1, 2, 3, 5)],
    Sample("matrix_power", (T(2, 2, 2, low=0.5), -2), tol=1e-7),
    Sample("matrix_power", (I(4, 4), 3), grad=False),
    of("mv", (6, 5), (5,)),
    of("dot", (6,), (6,)),
    of("dot", (5,), (5,)),
    of("outer", (6,), (4,)),
    of("outer", (5,), (3,)),
    of("matmul", (6,), (6,)),
    of("matmul", (6,), (6, 4)),
    of("matmul", (4, 6), (6,)),
    of("matmul", (4, 6), (6, 2)),
    of("matmul", (6,), (4, 6, 2)),
    of("matmul", (4, 2, 6), (6,)),
    of("matmul", (4, 3, 6), (6, 4)),
    of("matmul", (3, 6), (4, 6, 4)),
    of("matmul", (4, 3, 6), (4, 6, 2)),
    of("matmul", (2, 1, 3, 6), (6, 6, 4)),
    of("matmul", (4, 1, 3, 5), (1, 3, 5, 2)),
    of("matmul", (2, 3, 0), (0, 5)),
    Sample("mm_nt", (T(6, 4), T(5, 4)), torch=lambda a, b: a @ b.T, id="mm_nt"),
    Sample("mm_tn", (T(6, 4), T(6, 5)), torch=lambda a, b: a.T @ b, id="mm_tn"),
    Sample(
        "rows_tn",
        (T(4, 3, 6), T(4, 3, 5)),
        torch=rows_tn,
        id="rows_tn",
    ),
    widened(names.mm, torch.mm, (6, 4), (4, 5)),
    widened(names.mm_nt, lambda a, b: a @ b.T, (6, 4), (5, 4)),
    widened(names.mm_tn, lambda a, b: a.T @ b, (6, 4), (6, 5)),
    widened(names.matmul, torch.matmul, (4, 3, 6), (6, 4)),
    widened(product_nt, lambda a, b: a @ b.mT, (4, 3, 6), (5, 6)),
    widened(names.rows_tn, rows_tn, (4, 3, 6), (4, 3, 5)),
    Sample("sum_rows", (T(4, 3, 6),), torch=lambda x: x.sum((0, 1)), id="sum_rows"),
    Sample("sum_rows", (T(5, 6),), torch=lambda x: x.sum(0), id="sum_rows"),
    of("linear", (6, 4), (5, 4), (5,)),
    of("linear", (6, 4), (5, 4)),
    of("linear", (2, 3, 4), (6, 4), (6,)),
    of("linear", (2, 3, 2, 4), (6, 4), (6,)),
    of("linear", (4,), (6, 4), (6,)),
    of("linear", (6, 4), (4,)),
    of("linear", (0, 4), (6, 4), (6,)),
    of("addmm", (6, 2), (6, 4), (4, 2)),
    of("addmm", (2,), (6, 4), (4, 2), beta=0.5, alpha=2.0),
    Sample("addmm", (T(6, 2), T(6, 4), T(4, 2)), {"beta": 0}, grad=False),
    of("addmv", (6,), (6, 4), (4,), alpha=-1),
    of("baddbmm", (4, 3, 2), (4, 3, 6), (4, 6, 2), beta=2),
]
