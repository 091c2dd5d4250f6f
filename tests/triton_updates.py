"""Compares the Triton kernel of an update of many tensors with torch's, both beside float64."""

import os
from unittest import mock

import torch
from triton_harness import EPS, apart, largest

import onefold as flow
from onefold.engine.commit import finish
from onefold.optim.device_scalar import LocalStep
from onefold.optim.momentum import Momentum

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SIZES = [(3, 5), (0,), (2048,), (2100,), ()]


def lists(count, dtype, sizes=SIZES):
    found = [[torch.randn(size, dtype=dtype) for size in sizes] for _ in range(count)]
    return [[x.abs() if i in (3, 4) else x for x in row] for i, row in enumerate(found)]


def clones(columns, dtype=None):
    return [[x.to(dtype or x.dtype, copy=True) for x in column] for column in columns]


def kernels(chosen):
    """Choose torch or Triton for a while."""
    return mock.patch.dict(os.environ, {"ONEFOLD_KERNELS": chosen})


def rule(name, step=0, lr=0.1, scale=None, found_inf=None, **options):
    """The update of lists by an optimizer of `flow.optim`, or by its momentum of jobs."""
    cls = Momentum if name == "Momentum" else getattr(flow.optim, name)

    def update(columns, copies=None):
        # A new one each time, since an optimizer asks for its kernels once.
        optimizer = cls([flow.nn.Parameter(flow.ones(1))], **options)
        (group,) = optimizer.param_groups
        at = LocalStep(lr, step, scale, found_inf)
        if copies is None:
            finish(optimizer.update_lists(group, columns, at))
        else:
            finish(optimizer.update_with_copies(group, columns, at, copies))

    return update


def assert_updates(update, columns, slack=2):
    """By Triton the lists are changed as by torch; both are compared with float64.

    Of float64 torch itself is the exact one. A compiled kernel adds products without rounding them
    first, so it is off by units in the last place of the largest numbers.
    """
    exact, torchs, mine = clones(columns, torch.float64), clones(columns), clones(columns)
    with kernels("torch"):
        update(exact)
        update(torchs)
    with kernels("triton"):
        update(mine)
    for number, column in enumerate(mine):
        for i, found in enumerate(column):
            true, theirs = exact[number][i], torchs[number][i]
            limit = 2 * slack * max(1.0, largest(true)) * EPS[found.dtype]
            assert apart(theirs, true) <= limit, ("torch", number, i)
            assert apart(found, true) <= 2 * apart(theirs, true) + limit, (number, i)


def assert_skips(update, columns, changes):
    """`update(columns, found_inf)` changes no bit where `found_inf` is 1, by torch and Triton."""
    columns[1] = [x * torch.inf for x in columns[1]]  # what would be written is not finite
    for chosen in ("torch", "triton"):
        for found in (0.0, 1.0):
            mine = clones(columns)
            with kernels(chosen):
                update(mine, torch.tensor(found))
            same = [all(map(torch.equal, *pair)) for pair in zip(columns, mine, strict=True)]
            assert all(same) if found else not any(same[i] for i in changes)
