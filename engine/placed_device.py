"""The device of a global tensor: its type, and the placement that it stands for."""

from __future__ import annotations

import torch

from .placement import Placement


class PlacedDevice:
    """The `x.device` of a global tensor: a device that remembers the tensor's placement.

    It has a `type`, and compares, hashes and prints as `torch.device(type)` does. Where a device is
    asked for, it means the placement: new tensors are made there, broadcast unless `sbp` is given.

    >>> import onefold as flow
    >>> x = flow.ones(4, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.split(0))
    >>> x.device == flow.device("cpu"), flow.arange(4, device=x.device).sbp
    (True, (onefold.sbp.broadcast,))
    """

    __slots__ = ("placement",)

    index: None = None  # the ranks of the placement have devices of their own

    def __init__(self, placement: Placement) -> None:
        self.placement = placement

    @property
    def type(self) -> str:
        return self.placement.type

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PlacedDevice):
            return self.placement == other.placement
        return isinstance(other, torch.device) and torch.device(self.type) == other

    def __hash__(self) -> int:
        return hash(torch.device(self.type))

    def __str__(self) -> str:
        return self.type

    def __repr__(self) -> str:
        return f"device(type={self.type!r}, placement={self.placement!r})"
