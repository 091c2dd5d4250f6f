"""Cost model of collectives: alpha-beta times in seconds, with the constants of a machine."""

from __future__ import annotations

from ..machine import Link, machine
from ..sbp import Sbp

_WORTH = 8
LOCAL_EPSILON = 1e-9  # a slice or a relabelling: not nothing, so that fewer of them win


def efficient_bytes(device_type: str) -> float:
    """Bytes from which on a collective is worth its start: sending them takes 8 times as long.

    >>> round(efficient_bytes("cuda") / 2**20)
    23
    """
    link = machine(device_type).link
    return _WORTH * (link.launch + 2 * link.step) / link.byte


def rounds(ranks: int) -> int:
    """Rounds in which one rank's value can reach `ranks` ranks: the logarithm to base 2."""
    return (ranks - 1).bit_length()


def all_reduce(link: Link, ranks: int, nbytes: float) -> float:
    """Seconds to reduce a buffer of `nbytes` over `ranks` ranks and give it to all of them."""
    turns = 2 * rounds(ranks)
    return link.launch + turns * link.step + 2 * nbytes * (ranks - 1) / ranks * link.byte


def all_gather(link: Link, ranks: int, received: float) -> float:
    """Seconds to gather shards; `received` is the bytes one rank gets from the others."""
    return link.launch + rounds(ranks) * link.step + received * link.byte


def exchange(link: Link, messages: int, nbytes: float, remote: bool = False) -> float:
    """Seconds when the busiest rank sends `messages` messages and moves `nbytes` one way."""
    latency = link.launch + messages.bit_length() * link.step + messages * link.message
    return latency + nbytes * (link.remote if remote else link.byte)


def axis_cost(src: Sbp, dst: Sbp, parts: int, nbytes: float, device_type: str = "cuda") -> float:
    """Estimated seconds to change one axis of `parts` ranks from `src` to `dst`.

    `nbytes` is the size of the tensor over the group of that axis: its logical bytes divided
    by the splits of the other axes. 0.0 for equal sbps, a tiny epsilon for local work.

    >>> whole, rows = onefold.sbp.broadcast, onefold.sbp.split(0)
    >>> axis_cost(whole, rows, 4, 1024.0) < axis_cost(rows, whole, 4, 1024.0)
    True
    """
    if src is dst or parts == 1:
        return 0.0
    source, target = src.kind, dst.kind
    if source == "B" or (source == "S" and target not in "BS"):
        return LOCAL_EPSILON
    link = machine(device_type).link
    if source == "S":
        if target == "B":
            return all_gather(link, parts, nbytes * (parts - 1) / parts)
        return exchange(link, parts - 1, nbytes * (parts - 1) / (parts * parts))
    if target == "S":
        return exchange(link, parts - 1, nbytes * (parts - 1) / parts)
    return all_reduce(link, parts, nbytes)
