"""What launchers meet through: sockets, keys, and the state of an elastic rendezvous."""

import errno
import os
import pickle
import socket
from datetime import UTC, datetime

import pytest
from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous.api import RendezvousStateError
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc, _RendezvousState

from onefold.distributed.elastic_rendezvous import _as_json, _JsonBackend, _pickled
from onefold.distributed.launch_rendezvous import (
    FixedRendezvous,
    launcher_keys,
    listen,
    serve,
    wait_for_all,
)
from onefold.distributed.rank_state import RankStates, job_keys

ELSEWHERE = "192.0.2.1"  # no machine has it


def listening_on(*arguments, **options):
    with listen(*arguments, **options) as server:
        return server.getsockname()[0]


def test_the_named_address_alone_is_listened_on():
    assert listening_on("127.0.0.1", 0, remote=False) == "127.0.0.1"
    assert listening_on("127.0.0.1", 0, remote=True) == "127.0.0.1"
    assert listening_on("localhost", 0, remote=True) in ("127.0.0.1", "::1")


def test_an_address_that_the_machine_does_not_know():
    assert listening_on(ELSEWHERE, 0, remote=True) == "0.0.0.0"
    for options in ({"remote": False}, {"remote": True, "here": False}):
        with pytest.raises(OSError, match="assign") as caught:
            listen(ELSEWHERE, 0, **options)
        assert caught.value.errno == errno.EADDRNOTAVAIL


def test_a_machine_that_knows_itself_as_loopback(monkeypatch):
    known = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: known)
    assert listening_on("node0", 0, remote=True) == "0.0.0.0"
    assert listening_on("node0", 0, remote=False) == "127.0.1.1"


def test_jobs_and_starts_do_not_see_each_other():
    store = HashStore()
    mine = RankStates(job_keys(store, "mine", 0))
    mine.end(0, "failed")
    for token, start in (("mine", 1), ("theirs", 0), ("", 0)):
        assert RankStates(job_keys(store, token, start)).ending(0) == ""
    assert mine.ending(0) == "failed"


def test_launchers_of_other_jobs_do_not_meet(monkeypatch):
    store = HashStore()
    monkeypatch.setenv("ONEFOLD_TOKEN", "theirs")
    launcher_keys(store).set("here/1", "")
    monkeypatch.setenv("ONEFOLD_TOKEN", "mine")
    with pytest.raises(ConnectionError, match=r"nodes \[1\] have not come within 0.2 s"):
        wait_for_all(launcher_keys(store), 0, 2, timeout=0.2)


def test_one_machine_starts_any_number_of_times():
    store = serve("127.0.0.1", listen("127.0.0.1", 0, remote=False), 5.0)
    meeting = FixedRendezvous(store, "127.0.0.1", 0, 1, 5.0)
    for start in range(3):
        info = meeting.next_rendezvous()
        assert (info.rank, info.world_size, meeting.start) == (0, 1, start)
        assert not info.store.check(["seen"])
        info.store.set("seen", "")


def state():
    nodes = [_NodeDesc(f"node {i}", 10 + i, 0) for i in range(4)]
    now = datetime.now(UTC)
    made = _RendezvousState()
    made.round, made.complete, made.deadline = 3, True, now
    made.participants = {nodes[1]: 1, nodes[0]: 0}
    made.wait_list, made.redundancy_list = {nodes[2]}, {nodes[3]}
    made.last_heartbeats = dict.fromkeys(nodes, now)
    return made


@pytest.mark.parametrize("made", [_RendezvousState(), state()])
def test_the_state_comes_back_from_json(made):
    assert vars(pickle.loads(_pickled(_as_json(pickle.dumps(made))))) == vars(made)


class Attack:
    def __reduce__(self):
        return os._exit, (1,)


@pytest.mark.parametrize("data", [pickle.dumps(Attack()), b"{}", b"[1]", b'{"round": "x"}'])
def test_no_other_bytes_are_unpickled(data):
    store = HashStore()
    backend = _JsonBackend(store, "run")
    assert backend.get_state() is None
    _, token, was_set = backend.set_state(pickle.dumps(state()))
    assert was_set
    stale = backend.set_state(pickle.dumps(_RendezvousState()), b"another")
    assert vars(pickle.loads(stale[0])) == vars(pickle.loads(backend.get_state()[0]))
    assert (stale[1], stale[2]) == (token, False)
    with pytest.raises(RendezvousStateError, match="is not readable"):
        _pickled(data)
