"""Compares a Triton kernel with its torch reference: shapes, dtypes, errors in float64, poison."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import torch
from device_checks import DEVICE

from onefold.kernels import select
from onefold.kernels.gpu.launch.trace_cache import replayed
from onefold.kernels.interpreter.launch_memory import LaunchMemory

# A unit in the last place of 1.0.
EPS = {dtype: torch.finfo(dtype).eps for dtype in (torch.float64, torch.float32, torch.float16)}
EPS[torch.bfloat16] = torch.finfo(torch.bfloat16).eps
TRUSTED = 0.05  # a larger error of torch's is not rounding but a bug in torch


def without_records(monkeypatch):
    """Launches do not record who accesses what, which takes room for all of a tensor's memory."""

    def accessed(memory, pointers, mask):
        assert all(block is not None for _, block in memory._blocks(pointers, mask))

    for name in ("load", "store", "update"):
        monkeypatch.setattr(LaunchMemory, name, accessed)


@contextmanager
def poisoned_memory():
    """What is allocated and not written is NaN, or the largest integer."""
    names = [(torch, "empty"), (torch, "empty_like"), (torch, "empty_strided")]
    names += [(torch.Tensor, "new_empty")]
    kept = [(owner, name, getattr(owner, name)) for owner, name in names]

    def poisoned(make):
        def call(*args, **kwargs):
            made = make(*args, **kwargs)
            if type(made) is not torch.Tensor or made.is_meta:  # it has no memory
                return made
            if made.dtype.is_floating_point:
                return made.fill_(float("nan"))
            return made.fill_(True if made.dtype is torch.bool else torch.iinfo(made.dtype).max)

        return call

    try:
        for owner, name, make in kept:
            setattr(owner, name, poisoned(make))
        yield
    finally:
        for owner, name, make in kept:
            setattr(owner, name, make)


def each(value: Any, change: Any) -> Any:
    """The value with every tensor in it changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)([each(part, change) for part in value])
    return value


def by_torch(reference: Any, args: Any, kw: Any, on_cpu: bool = False) -> list[torch.Tensor]:
    """What the reference gives: on the CPU if that is asked for, or torch has no other kernel."""
    if not on_cpu or DEVICE == "cpu":
        try:
            return flat(reference(*args, **kw))
        except NotImplementedError:  # as for products of integers, or angles of half precision
            if DEVICE == "cpu":
                raise
    args = each(args, torch.Tensor.cpu)
    kw = {key: each(value, torch.Tensor.cpu) for key, value in kw.items()}
    with torch.device("cpu"):
        return [x.to(DEVICE) for x in flat(reference(*args, **kw))]


def wide(x: torch.Tensor) -> torch.Tensor:
    return x.double() if x.dtype.is_floating_point else x


def flat(value: Any) -> list[torch.Tensor]:
    """All tensors in it."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [x for part in value for x in flat(part)] if isinstance(value, (list, tuple)) else []


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest difference, beside the size of the exact values."""
    return apart(found, exact) / max(largest(exact), 1e-30)


def apart(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest difference."""
    if exact.numel() == 0:
        return 0.0
    found, exact = found.double(), exact.double()
    same = (found == exact) | (found.isnan() & exact.isnan())
    return float(torch.where(same, 0.0, (found - exact).abs()).max())


def largest(exact: torch.Tensor) -> float:
    """The largest finite magnitude."""
    sizes = exact[exact.isfinite()].abs()
    return float(sizes.max()) if sizes.numel() else 0.0


def assert_matches_reference(
    reference: Any,
    *args: Any,
    factor: float = 2.0,
    slack: float = 2.0,
    defined: Any = None,
    on_cpu: bool = False,
    **kw: Any,
):
    """The Triton kernel of a torch reference gives the same, at most `factor` times as inexact.

    Both errors are against the reference in float64; `slack` units in the last place are free.
    What is exact in torch (integers, bools, copies) must be equal. `defined` takes the results, and
    gives what of them is compared. The reference runs on the CPU with `on_cpu`, or where torch has
    no kernel on the device. Returns what the Triton kernel gave.
    """
    triton_kernel = select.triton_kernel(reference)
    assert triton_kernel is not None, f"{reference} has no Triton kernel"
    exact = by_torch(reference, each(args, wide), each(kw, wide), on_cpu)
    torchs = by_torch(reference, each(args, torch.clone), kw, on_cpu)
    with poisoned_memory():
        result = replayed(triton_kernel)(*args, **kw)
    found = flat(result)
    if defined is not None:
        exact, torchs, found = (defined(*results) for results in (exact, torchs, found))
    assert len(found) == len(torchs)
    for mine, theirs, true in zip(found, torchs, exact, strict=True):
        assert mine.shape == theirs.shape, (mine.shape, theirs.shape)
        assert mine.dtype == theirs.dtype, (mine.dtype, theirs.dtype)
        if not mine.dtype.is_floating_point:
            assert torch.equal(mine, theirs)
            continue
        if (most := largest(true)) <= torch.finfo(theirs.dtype).max:  # in the dtype's range
            gap = apart(theirs, true)
            assert gap <= TRUSTED * max(1.0, most), f"torch itself is {gap:.3e} from float64"
        limit = factor * error(theirs, true) + slack * EPS[mine.dtype]
        off = error(mine, true)
        assert off <= limit, f"{off:.3e} from float64, where {limit:.3e} is allowed"
    return result
