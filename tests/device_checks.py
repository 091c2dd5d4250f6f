"""Checks of a sample on another device and in narrower dtypes, against torch in float64 there.

The device is cuda where there is one, and the CPU elsewhere, so that the checks themselves can be
tested anywhere.
"""

from __future__ import annotations

import math
import re
from copy import copy
from dataclasses import dataclass, replace

import torch

from onefold.engine.placement import Placement
from onefold.engine.sbp import broadcast, short
from onefold.testing.sample_checks import (
    Results,
    compare,
    global_results,
    local_results,
    reference,
    spread,
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDE = (torch.float64, torch.float32)
FACTOR = 2.0  # how much less exact than torch a result may be
SLACK = 4.0  # units in the last place that are free
SLACK_ALONE = 16.0  # and where torch has no kernel to compare with
LEAST = 1e-2  # results that are all smaller are held to this size
LACKING = re.compile(r"derivative for \S+ is not implemented")  # as torch says it


@dataclass
class Change:
    """How the values of a sample are changed before they are used: first arguments, then others.

    With a dtype, float64 and float32 arguments are rounded to it, and stand as `held` says; the
    cotangents that follow are rounded and keep theirs.
    """

    arguments: int
    device: str
    dtype: torch.dtype | None = None
    held: torch.dtype | None = None  # None: as rounded

    def __call__(self, value: torch.Tensor) -> torch.Tensor:
        self.arguments -= 1
        if self.dtype is None or value.dtype not in WIDE:
            return value.to(self.device, copy=True)
        rounded = value.to(self.dtype)
        kept = (self.held or self.dtype) if self.arguments >= 0 else value.dtype
        return rounded.to(kept).to(self.device, copy=True)


class TorchCannot(Exception):
    """torch has no kernel for a dtype."""


def as_it_is(sample, ranks=()):
    """In what a sample's results on the device differ from torch's on the CPU, or ""."""
    sample, wanted = by_torch(sample)
    count = len(sample.tensors())
    if not ranks:
        try:
            found = local_results(sample, change=Change(count, DEVICE))
        except RuntimeError as error:
            # Ops whose gradients are functions of torch have no second ones where these have none.
            if wanted.second is not None or not LACKING.search(str(error)):
                raise
            found = local_results(sample, False, Change(count, DEVICE))
        return compare(on_host(found), wanted, sample.tol)
    texts = []
    for nd_sbps in layouts(sample, ranks):
        found = global_results(sample, Placement(DEVICE, ranks), nd_sbps)
        text = compare(on_host(found), wanted, sample.tol)
        texts += [f"{', '.join(map(short, nd_sbps))}: {text}"] if text else []
    return "; ".join(texts)


def by_torch(sample, change=torch.clone, second=True):
    """The sample, and its results by torch: without gradients where this version has none."""
    try:
        return sample, reference(sample, copy(change), second)
    except RuntimeError as error:
        if not (sample.grad and LACKING.search(str(error))):
            raise
    sample = replace(sample, grad=False)
    return sample, reference(sample, copy(change), second)


def narrow(sample, dtype, ranks=()):
    """In what its results in a narrower dtype are worse than torch's, or "".

    Raises TorchCannot where neither torch nor onefold has the dtype.
    """
    # By default torch allows tf32 in convolutions and recurrent networks, and uses it for some
    # shapes only. Onefold's kernels read the same setting.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        return _narrow(sample, dtype, ranks)


def _narrow(sample, dtype, ranks):
    count = len(sample.tensors())
    change = Change(count, "cpu", dtype, torch.float64)
    sample, exact = by_torch(sample, change, second=False)
    try:
        with torch.device(DEVICE):
            torchs = reference(sample, Change(count, DEVICE, dtype), second=False)
    except RuntimeError as error:
        torchs, why = None, error
    try:
        if ranks:
            place = Placement(DEVICE, ranks)
            change = Change(count, "cpu", dtype)
            found = global_results(sample, place, layouts(sample, ranks, dtype)[0], change=change)
        else:
            found = local_results(sample, False, Change(count, DEVICE, dtype))
    except RuntimeError as error:
        if torchs is None:
            raise TorchCannot(str(why)) from error
        raise
    least = sample.tol if sample.name == "scaled_matmul" else 0.0  # tensor cores round its sums
    return worse(on_host(found), torchs and on_host(torchs), exact, least)


def layouts(sample, ranks, dtype=None):
    """Two layouts of its arguments on one axis; no partial sums where a dtype would round them."""
    found = [
        nd_sbps
        for nd_sbps in spread(sample.tensors(), Placement(DEVICE, ranks), 8, sample.seed)
        if dtype is None or not any(sbp.is_partial for nd_sbp in nd_sbps for sbp in nd_sbp)
    ]
    return found[:2] or [tuple((broadcast,) for _ in sample.tensors())]


def on_host(results):
    """The same results, on the CPU."""

    def moved(values):
        return values and [None if x is None else x.cpu() for x in values]

    return Results(moved(results.outputs), moved(results.grads), moved(results.second))


def worse(found, torchs, exact, least=0.0):
    """In what results are further from the exact ones than they may be, `least` at least, or ""."""
    texts = []
    for kind in ("outputs", "grads"):
        mine, true = getattr(found, kind), getattr(exact, kind)
        theirs = getattr(torchs, kind) if torchs else [None] * len(true)
        largest = max((size_of(x) for x in true if x is not None), default=0.0)
        if not len(mine) == len(theirs) == len(true):
            return f"{len(mine)} {kind} instead of {len(true)}"
        for index, (one, other, value) in enumerate(zip(mine, theirs, true, strict=True)):
            # Where all is zero, as in gradients of which all terms cancel, the size of its
            # neighbors stands for that of the terms.
            size = 0.0 if value is None else size_of(value) or largest
            text = _worse(one, other, value, torchs is not None, max(size, LEAST), least)
            texts += [f"{kind} {index}: {text}"] if text else []
    return ", ".join(texts)


def _worse(mine, theirs, exact, compared, size, least):
    shown = [x for x in (mine, theirs, exact) if x is not None]
    if not shown:
        return ""
    mine, theirs, exact = (torch.zeros_like(shown[0]) if x is None else x
                           for x in (mine, theirs, exact))  # fmt: skip
    if mine.shape != exact.shape:
        return f"shape {tuple(mine.shape)} instead of {tuple(exact.shape)}"
    if compared and mine.dtype != theirs.dtype:
        return f"dtype {mine.dtype} instead of {theirs.dtype}"
    if not mine.dtype.is_floating_point:
        same = torch.equal(mine, exact) or (compared and torch.equal(mine, theirs))
        return "" if same else "other values"
    limit = SLACK_ALONE * torch.finfo(mine.dtype).eps
    if compared:
        limit = FACTOR * distance(theirs, exact, size) + SLACK * torch.finfo(mine.dtype).eps
    limit = max(limit, least)
    off = distance(mine, exact, size)
    return "" if off <= limit else f"{off:.3e} from float64, where {limit:.3e} is allowed"


def size_of(exact):
    """The largest finite magnitude; 0 of no elements, and of what is not floating."""
    if not exact.dtype.is_floating_point or not exact.numel():
        return 0.0
    return float(torch.where(exact.isfinite(), exact.abs(), 0.0).max())


def distance(found, exact, size):
    """The largest difference, relative to this size."""
    found, exact = found.double(), exact.double()
    same = (found == exact) | (found.isnan() & exact.isnan())
    apart = torch.where(same, 0.0, (found - exact).abs()).nan_to_num(nan=math.inf)
    return float(apart.max()) / size if exact.numel() else 0.0
