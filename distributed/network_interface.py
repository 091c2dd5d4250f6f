"""Network interface: over which one Gloo reaches other machines, where it would not find it."""

from __future__ import annotations

import ipaddress
import os
import socket
from contextlib import suppress
from pathlib import Path

from ..env import GLOO_INTERFACE

_ROUTES = "/proc/net/route"  # of Linux


def choose_interface(master: str) -> None:
    """Let Gloo take the interface that leads to `master`, where the own name says nothing.

    Gloo tells the others the address of the machine's name. On many machines (Debian's, Ubuntu's)
    that is a loopback address, at which others would look for it on themselves. Does nothing where
    the environment names an interface, and where none is found.
    """
    with suppress(OSError):
        if not GLOO_INTERFACE.is_set() and _is_loopback(_address_of_name()):
            address = socket.gethostbyname(master)
            found = "" if _is_loopback(address) else interface_to(address, _routes())
            if found:
                os.environ[GLOO_INTERFACE.name] = found


def interface_to(address: str, routes: str) -> str:
    """The interface of the narrowest route to an IPv4 address; empty if there is none.

    `routes` is what Linux tells in /proc/net/route.
    """
    wanted = int.from_bytes(socket.inet_aton(address), "little")
    found = ""
    narrowest = -1
    for line in routes.splitlines()[1:]:
        name, target, _, _, _, _, _, mask, *_ = line.split()
        width = int(mask, 16).bit_count()
        if wanted & int(mask, 16) == int(target, 16) and width > narrowest:
            found, narrowest = name, width
    return found


def _routes() -> str:
    return Path(_ROUTES).read_text()


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _address_of_name() -> str:
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return "127.0.0.1"  # which Gloo takes then, too
    return str(found[0][4][0])
