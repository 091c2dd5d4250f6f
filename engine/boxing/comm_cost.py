"""Cost model of collectives: alpha-beta times in seconds, from one table of constants."""

from __future__ import annotations

from dataclasses import dataclass

from ..sbp import Sbp


@dataclass(frozen=True, slots=True)
class Link:
    """What communication costs between the ranks of one device type."""

    launch: float  # seconds per collective, whatever its size
    step: float  # seconds per round in which every rank sends one message
    message: float  # seconds per further message of the same round
    byte: float  # seconds per byte received
    remote: float  # the same between two placements, which may be on other machines


# cuda: launch and step from NCCL's own tuner (ring and tree over NVLink), byte from the bus
# bandwidth of one GPU; cpu: Gloo between processes of one machine, measured.
LINKS = {
    "cpu": Link(launch=120e-6, step=60e-6, message=20e-6, byte=1e-9, remote=1e-9),
    "cuda": Link(launch=12e-6, step=2e-6, message=0.6e-6, byte=1 / 200e9, remote=1 / 50e9),
}
COPY = 1 / 20e9  # seconds per byte between a cuda device and its host
_WORTH = 8
LOCAL_EPSILON = 1e-9  # a slice or a relabelling: not nothing, so that fewer of them win


def efficient_bytes(device_type: str) -> float:
    """Bytes from which on a collective is worth its start: sending them takes 8 times as long.

    >>> round(efficient_bytes("cuda") / 2**20)
    24
    """
    link = LINKS[device_type]
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
    link = LINKS[device_type]
    if source == "S":
        if target == "B":
            return all_gather(link, parts, nbytes * (parts - 1) / parts)
        return exchange(link, parts - 1, nbytes * (parts - 1) / (parts * parts))
    if target == "S":
        return exchange(link, parts - 1, nbytes * (parts - 1) / parts)
    return all_reduce(link, parts, nbytes)
