"""Elastic rendezvous: launchers join and leave, and the ranks start again on those that are there.

This is torch's dynamic rendezvous. Its state travels as JSON: torch pickles it, and whoever
reaches the store could make the launchers unpickle, which is to run, anything.
"""

from __future__ import annotations

import json
import pickle
import socket
import time
from datetime import datetime, timedelta
from typing import Any

from torch._C._distributed_c10d import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousStoreInfo
from torch.distributed.elastic.rendezvous.api import RendezvousStateError
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousTimeout,
    Token,
    _NodeDesc,
    _RendezvousState,
)

from .launch_rendezvous import RUN_ID, launcher_keys, wait_for_all

# A machine whose ranks have failed leaves for a moment, and joins again.
_RETURN = 5.0
_Found = tuple[bytes, Token]
_Set = tuple[bytes, Token, bool]  # whether it is what was to be set


class ElasticRendezvous(DynamicRendezvousHandler):
    """MIN to MAX machines. `start` is the number of the start, the same on all of them."""

    store: TCPStore
    start = -1
    _timeout = 0.0
    _size = 0  # machines of the last start
    _seen_whole = 0.0  # when all of them were there, or others wanted to join

    @classmethod
    def on(
        cls,
        store: TCPStore,
        host: str,
        nodes: tuple[int, int],
        node_rank: int | None,
        timeout: float,
        last_call: float,
    ) -> ElasticRendezvous:
        """The rendezvous at `store`, which is served at `host`.

        Once MIN machines are there, it waits `last_call` seconds for more. Machines are numbered
        in the order of `node_rank` and their names.
        """
        keys = launcher_keys(store)
        found: ElasticRendezvous = cls.from_backend(
            RUN_ID,
            keys,
            _JsonBackend(keys, RUN_ID),
            *nodes,
            f"{node_rank or 0:08d} {socket.gethostname()}",
            RendezvousTimeout(
                join=timedelta(seconds=timeout), last_call=timedelta(seconds=last_call)
            ),
        )
        found.store = store
        found._timeout = timeout
        # torch would serve another store, on all addresses, and machines that join would not find
        # it: the first one tells its address once, but in a part of the store that each start has.
        found._shared_tcp_store_server = store
        found._bootstrap_store_info = RendezvousStoreInfo(host, store.port)
        return found

    def next_rendezvous(self) -> RendezvousInfo:
        """The part of the store for the next start, and the number of this machine in it."""
        info: RendezvousInfo = super().next_rendezvous()
        if info.rank == 0:
            info.store.set("start", str(launcher_keys(self.store).add("starts", 1) - 1))
        wait_for_all(info.store, info.rank, info.world_size, self._timeout)
        self.start = int(info.store.get("start"))
        self._size, self._seen_whole = info.world_size, time.monotonic()
        return info

    def has_lost_one(self) -> bool:
        """Whether a machine of the last start is gone: it is silent, and does not come back.

        Ranks that wait for each other through the store would not notice before the timeout.
        """
        state = self._state_holder.state  # torch takes those out that are silent for 15 s
        if len(state.participants) >= self._size or state.wait_list:
            self._seen_whole = time.monotonic()
        return time.monotonic() - self._seen_whole > _RETURN


class _JsonBackend(C10dRendezvousBackend):
    """Keeps the state as JSON. What is unpickled comes from this process."""

    def get_state(self) -> _Found | None:
        found: _Found | None = super().get_state()
        return None if found is None else (_pickled(found[0]), found[1])

    def set_state(self, state: bytes, token: Token | None = None) -> _Set | None:
        found: _Set | None = super().set_state(_as_json(state), token)
        return None if found is None else (_pickled(found[0]), *found[1:])


def _as_json(pickled: bytes) -> bytes:
    state: _RendezvousState = pickle.loads(pickled)
    fields: dict[str, Any] = {
        "round": state.round,
        "complete": state.complete,
        "closed": state.closed,
        "deadline": state.deadline and state.deadline.isoformat(),
        "participants": [[*_node(node), rank] for node, rank in state.participants.items()],
        "wait_list": [_node(node) for node in sorted(state.wait_list)],
        "redundancy_list": [_node(node) for node in sorted(state.redundancy_list)],
        "last_heartbeats": [
            [*_node(node), moment.isoformat()] for node, moment in state.last_heartbeats.items()
        ],
    }
    return json.dumps(fields).encode()


def _pickled(text: bytes) -> bytes:
    state = _RendezvousState()
    try:
        fields = json.loads(text)
        state.round = int(fields["round"])
        state.complete = bool(fields["complete"])
        state.closed = bool(fields["closed"])
        state.deadline = fields["deadline"] and datetime.fromisoformat(fields["deadline"])
        state.participants = {_NodeDesc(*node): rank for *node, rank in fields["participants"]}
        state.wait_list = {_NodeDesc(*node) for node in fields["wait_list"]}
        state.redundancy_list = {_NodeDesc(*node) for node in fields["redundancy_list"]}
        state.last_heartbeats = {
            _NodeDesc(*node): datetime.fromisoformat(moment)
            for *node, moment in fields["last_heartbeats"]
        }
    except (ValueError, TypeError, KeyError) as error:
        raise RendezvousStateError(
            f"the state of the rendezvous is not readable: {error}"
        ) from None
    return pickle.dumps(state)


def _node(node: _NodeDesc) -> list[str | int]:
    return [node.addr, node.pid, node.local_id]
