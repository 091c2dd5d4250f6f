"""Parts of inputs for lists of devices, which older programs import and seldom call.

One device is what a program has where they do: its inputs are one part, and its module one copy.
For several devices, layouts make a program data parallel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import OnefoldNotImplementedError

__all__ = ["gather", "scatter", "scatter_kwargs"]


def check_one(what: str, devices: Sequence[object]) -> None:
    """Raise OnefoldNotImplementedError unless there is one device."""
    if len(devices) != 1:
        raise OnefoldNotImplementedError(
            f"{what}: got {len(devices)} devices, but there is one here; for several, wrap the "
            "module in flow.nn.parallel.DistributedDataParallel, or call "
            "module.to_global(placement, flow.sbp.broadcast) and split the inputs by "
            "flow.sbp.split(0)"
        )


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> list[Any]:
    """The part of the inputs for each device; raises OnefoldNotImplementedError for several."""
    check_one("scatter", target_gpus)
    return [inputs]


def scatter_kwargs(
    inputs: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    target_gpus: Sequence[Any],
    dim: int = 0,
) -> tuple[tuple[tuple[Any, ...], ...], tuple[dict[str, Any], ...]]:
    """The parts of positional and of keyword arguments, as `scatter`."""
    check_one("scatter_kwargs", target_gpus)
    return (inputs,), (dict(kwargs or {}),)


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """The outputs of each device as one; raises OnefoldNotImplementedError for several."""
    check_one("gather", outputs)
    return outputs[0]
