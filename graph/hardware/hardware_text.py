"""Hardware text: a record as the TOML file that gives it again."""

from __future__ import annotations

from collections.abc import Mapping
from json import dumps
from math import inf

from .hardware_record import Curve, Hardware, Link


def as_toml(hardware: Hardware, comment: str = "") -> str:
    """The text of a hardware file; `comment` stands above it, and says where its numbers are from.

    >>> print(as_toml(onefold.graph.hardware.read("h100")).splitlines()[0])
    name = "DGX H100"
    """
    lines = [f"# {line}" for line in comment.splitlines()]
    lines.append(f"name = {_value(hardware.name)}")
    lines += _table("peak", {str(k).removeprefix("torch."): v for k, v in hardware.peak.items()})
    memory = {
        "bytes": hardware.memory_bytes,
        "bandwidth": hardware.memory_bandwidth,
        "context": hardware.context_bytes,
        "communicator": hardware.communicator_bytes,
    }
    lines += _table("memory", memory)
    host = {"bandwidth": hardware.host_bandwidth}
    if hardware.host_bytes is not None:
        host["bytes"] = hardware.host_bytes
    lines += _table("host", host)
    lines += _table(
        "launch",
        {
            "op": hardware.launch,
            "collective": hardware.collective_launch,
            "ahead": hardware.launches_ahead,
        },
    )
    lines += _table("overlap", {"contention": hardware.contention, "skew": hardware.skew})
    efficiency = {
        "matmul": hardware.matmul,
        "narrow": hardware.narrow,
        "attention": hardware.attention,
        "memory": hardware.memory,
    }
    lines += _table("efficiency", efficiency)
    if hardware.ops:
        lines += _table("ops", hardware.ops)
    for link in hardware.links:
        lines += ["", "[[links]]", *_fields(_of(link))]
    return "\n".join(lines) + "\n"


def _of(link: Link) -> dict[str, object]:
    reach = {} if link.ranks == inf else {"ranks": int(link.ranks)}
    protocols = {"protocols": tuple(map(list, link.protocols))} if link.protocols else {}
    return {
        "name": link.name,
        **reach,
        "launch": link.launch,
        "latency": link.latency,
        "message": link.message,
        **protocols,
        "bandwidth": link.bandwidth,
        "algorithms": link.algorithms,
        "efficiency": link.efficiency,
    }


def _table(name: str, fields: Mapping[str, object]) -> list[str]:
    return ["", f"[{name}]", *_fields(fields)]


def _fields(fields: Mapping[str, object]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in fields.items()]


def _value(value: object) -> str:
    """A value in TOML's notation, which for these values is that of JSON."""
    if isinstance(value, Curve):
        value = [list(point) for point in value.points]
    return dumps(list(value) if isinstance(value, tuple) else value)
