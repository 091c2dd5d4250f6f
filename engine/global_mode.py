"""global_mode: a block in which new tensors are global, so that a local program runs globally."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from ..errors import OnefoldTypeError, PlacementError, SbpError
from .placed_device import PlacedDevice
from .placement import Placement
from .sbp import NdSbp, SbpLike, as_nd_sbp
from .thread_stack import ThreadStack

P = ParamSpec("P")
R = TypeVar("R")

# The placement and sbp of new tensors; None where the mode is off.
_modes = ThreadStack[tuple[Placement, NdSbp] | None]("global_mode")


def mode_now() -> tuple[Placement, NdSbp] | None:
    """The layout of new tensors in the innermost block; None if the mode is off."""
    return _modes.last


class global_mode:
    """In the block, or decorated function, creation functions make global tensors of one layout.

    `device` arguments are ignored there, so that programs written for local tensors run on global
    ones; but the `device` of a tensor on another placement means that placement, and what is made
    like a local tensor (`zeros_like`) is local, as is what shares memory with what it was made of
    (`from_numpy`, `from_torch`, `from_dlpack`). `global_mode(False)` switches an outer block off.
    Raises PlacementError and SbpError for what is no layout.

    >>> import onefold as flow
    >>> p = flow.placement("cpu", [0, 1])
    >>> with flow.utils.global_view.global_mode(True, p, flow.sbp.broadcast):
    ...     x = flow.ones(2, device="cpu")
    ...     (x + flow.zeros(2, device=x.device)).sbp
    (onefold.sbp.broadcast,)
    """

    def __init__(
        self, enabled: bool, placement: Placement | None = None, sbp: SbpLike | None = None
    ) -> None:
        if not isinstance(enabled, bool):
            raise OnefoldTypeError(f"global_mode: enabled must be a bool, but got {enabled!r}")
        self._mode: tuple[Placement, NdSbp] | None = None
        if enabled:
            if not isinstance(placement, Placement):
                raise PlacementError(
                    "global_mode(True) needs a placement and an sbp, but placement is "
                    f"{placement!r}"
                )
            if sbp is None:
                raise SbpError("global_mode(True) needs a placement and an sbp, but sbp is None")
            self._mode = placement, as_nd_sbp(sbp, placement.ndim)

    def __enter__(self) -> None:
        _modes.push(self._mode)

    def __exit__(self, *exc: object) -> None:
        _modes.pop()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return call


class current_global_mode:
    """The current mode: `is_enabled`, and the `placement` and `sbp` of new tensors."""

    def __init__(self) -> None:
        self._mode = mode_now()

    @property
    def is_enabled(self) -> bool:
        return self._mode is not None

    @property
    def placement(self) -> Placement | None:
        return None if self._mode is None else self._mode[0]

    @property
    def sbp(self) -> NdSbp | None:
        return None if self._mode is None else self._mode[1]


class OwnDevice(str):
    """The device of a tensor next to which another is created: local in every mode."""

    __slots__ = ()


def layout_of_new(device: object) -> tuple[Placement, NdSbp] | None:
    """The layout of a new tensor that was only given this device; None if it is local."""
    if not _modes.items():  # as in most programs
        return None
    mode = mode_now()
    if mode is None or isinstance(device, OwnDevice):
        return None
    elsewhere = isinstance(device, PlacedDevice) and device.placement is not mode[0]
    return None if elsewhere else mode


def is_enabled() -> bool:
    """Whether the mode is on."""
    return mode_now() is not None
