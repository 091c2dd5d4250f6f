"""Which interface Gloo takes on several machines."""

import os
import socket

import pytest

from onefold.distributed import network_interface
from onefold.distributed.network_interface import choose_interface, interface_to

# A default route, the networks of two interfaces, and one behind a router of the second.
ROUTES = """\
Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
ib0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
ib0\t0002A8C0\t0101A8C0\t0003\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""


@pytest.mark.parametrize(
    ("address", "found"),
    [("10.0.0.7", "eth0"), ("192.168.1.3", "ib0"), ("192.168.2.9", "ib0"), ("8.8.8.8", "eth0")],
)
def test_the_narrowest_route(address, found):
    assert interface_to(address, ROUTES) == found


def test_no_route():
    assert interface_to("8.8.8.8", ROUTES.splitlines()[0]) == ""


@pytest.mark.parametrize(
    ("name_is", "master", "set_before", "wanted"),
    [
        ("127.0.1.1", "192.168.1.3", None, "ib0"),
        ("", "10.0.0.7", None, "eth0"),  # the name has no address
        ("10.0.0.8", "192.168.1.3", None, None),
        ("127.0.1.1", "127.0.0.1", None, None),
        ("127.0.1.1", "192.168.1.3", "eth7", "eth7"),
    ],
)
def test_where_the_name_of_the_machine_says_nothing(
    monkeypatch, name_is, master, set_before, wanted
):
    def address(*_, **__):
        if not name_is:
            raise socket.gaierror
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (name_is, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", address)
    monkeypatch.setattr(network_interface, "_routes", lambda: ROUTES)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", set_before or "")
    choose_interface(master)
    assert (os.environ["GLOO_SOCKET_IFNAME"] or None) == wanted
