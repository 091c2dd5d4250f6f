"""Where the launchers of a job meet: they agree on machine numbers and share a key-value store.

The store is served by one of the launchers, on the address that the user named and on no other.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import time
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
)

from ..env import TOKEN

DEFAULT_PORT = 29500
RUN_ID = "onefold"
_INTERVAL = 0.05


def listen(host: str, port: int, remote: bool, here: bool = True) -> socket.socket:
    """A socket that listens on `host` alone. OSError when the port is in use.

    With `remote` other machines connect to it. A machine may know its own name as a loopback
    address, or not know its address (behind a translation of addresses): then it listens on all.
    Where it is not certain that the host is this machine, `here` is False.
    """
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    hidden = ipaddress.ip_address(address[0]).is_loopback and not _is_loopback(host)
    if not (remote and hidden):
        server = socket.socket(family, socket.SOCK_STREAM)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(address)
        except OSError as error:
            server.close()
            if not (remote and here) or error.errno != errno.EADDRNOTAVAIL:
                raise
        else:
            server.listen(socket.SOMAXCONN)
            return server
    return socket.create_server(("", port), family=family, backlog=socket.SOMAXCONN)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve(host: str, server: socket.socket, timeout: float) -> TCPStore:
    """A store that this process serves on a listening socket, which it takes."""
    port = server.getsockname()[1]
    return TCPStore(
        host,
        port,
        None,
        True,
        timedelta(seconds=timeout),
        wait_for_workers=False,
        master_listen_fd=server.detach(),
    )


def connect(host: str, port: int, timeout: float) -> TCPStore:
    """A store that another process serves. RuntimeError when there is none within the timeout."""
    return TCPStore(host, port, None, False, timedelta(seconds=timeout), wait_for_workers=False)


def wait_for_all(store: Store, node: int, nodes: int, timeout: float) -> None:
    """Return when all machines have come here. ConnectionError names those that have not in time.

    A wait in the store itself would not let signals in.
    """
    store.set(f"here/{node}", "")
    deadline = time.monotonic() + timeout
    missing = list(range(nodes))
    while missing := [each for each in missing if not store.check([f"here/{each}"])]:
        if time.monotonic() > deadline:
            raise ConnectionError(
                f"the launchers of nodes {missing} have not come within {timeout:g} s "
                "(ONEFOLD_TIMEOUT)"
            )
        time.sleep(_INTERVAL)


def launcher_keys(store: Store) -> Store:
    """The part of `store` that belongs to the launchers of this job."""
    return PrefixStore(f"launch/{TOKEN.read()}", store)


class FixedRendezvous(RendezvousHandler):
    """A fixed number of machines, numbered by the user. `start` counts the starts of one machine.

    A machine that is alone may start its ranks any number of times.
    """

    def __init__(
        self, store: TCPStore, host: str, node_rank: int, nodes: int, timeout: float
    ) -> None:
        self.store = store
        self.start = -1
        self._host = host
        self._node_rank = node_rank
        self._nodes = nodes
        self._timeout = timeout

    @property
    def use_agent_store(self) -> bool:
        """Programs find the store at MASTER_ADDR and MASTER_PORT."""
        return True

    def get_backend(self) -> str:
        """torch's name of this kind."""
        return "static"

    def next_rendezvous(self) -> RendezvousInfo:
        """The part of the store for the next start, and the number of this machine."""
        self.start += 1
        store = PrefixStore(f"start{self.start}", launcher_keys(self.store))
        wait_for_all(store, self._node_rank, self._nodes, self._timeout)
        return RendezvousInfo(
            store,
            self._node_rank,
            self._nodes,
            RendezvousStoreInfo(self._host, self.store.port),
        )

    def is_closed(self) -> bool:
        """Never."""
        return False

    def set_closed(self) -> None:
        """Nothing to do."""

    def num_nodes_waiting(self) -> int:
        """None: no machine can come later."""
        return 0

    def get_run_id(self) -> str:
        """The name of the job in torch's environment variables."""
        return RUN_ID

    def shutdown(self) -> bool:
        """Nothing to do."""
        return True
