"""Which GPU a process takes, and whether ranks communicate by NCCL; without a GPU here."""

import os
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from launched import run_ranks

from onefold.checkpoint import background
from onefold.distributed import connection, device_claims, named_groups, topology
from onefold.distributed.collectives import all_reduce, gather_objects
from onefold.distributed.device_claims import VERDICT, claim, each_has_one
from onefold.distributed.pending import Pending
from onefold.distributed.watchdog import Watchdog
from onefold.distributed.world import forget_world, world


class Gpus:
    """Stands for torch.cuda on a machine of some GPUs, of which process `rank` sees `seen`."""

    def __init__(self, monkeypatch, seen, known=True):
        self.current, self.synchronized = 0, 0
        fakes = {
            "is_available": lambda: bool(seen),
            "device_count": lambda: len(seen),
            "current_device": lambda: self.current,
            "set_device": lambda index: setattr(self, "current", index),
            "synchronize": lambda: setattr(self, "synchronized", self.synchronized + 1),
            "get_device_properties": lambda index: SimpleNamespace(
                pci_domain_id=0, pci_bus_id=seen[index] if known else None, pci_device_id=0,
                uuid=f"GPU-{seen[index]}",
            ),
        }  # fmt: skip
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)
        monkeypatch.delenv("ONEFOLD_DEVICE", raising=False)


@pytest.mark.parametrize(
    ("devices", "verdict"),
    [
        (["a", "b"], True),
        (["a", "a"], False),
        (["a", ""], False),
        (["", ""], False),
        (["a"], True),
        (["a", "b", "a"], False),
    ],
)
def test_each_rank_has_a_gpu_of_its_own_or_not(devices, verdict):
    store = dist.HashStore()
    for device in devices:
        assert not store.check([VERDICT])
        claim(store, len(devices), device)
    assert each_has_one(store) is verdict


def test_addresses_of_gpus(monkeypatch):
    Gpus(monkeypatch, [7, 9])
    assert device_claims.address(0) != device_claims.address(1)
    Gpus(monkeypatch, [9])
    ninth = device_claims.address(0)
    Gpus(monkeypatch, [7, 9])
    assert device_claims.address(1) == ninth, "however many a process sees"
    Gpus(monkeypatch, [9], known=False)
    assert device_claims.address(0).endswith("GPU-9")


def _connected(monkeypatch, seen_by, local_rank):
    """(back end, whether through the host, device) of a rank that sees these GPUs.

    Gloo stands for NCCL.
    """

    def program():
        rank = world().rank
        world().disconnect()
        gpus = Gpus(monkeypatch, seen_by[rank])
        asked = []
        init = dist.init_process_group

        def begin(backend, **options):
            asked.append(backend)
            init("gloo", **options)

        monkeypatch.setattr(dist, "init_process_group", begin)
        limits = []
        monkeypatch.setattr(connection, "give_time", lambda handle, limit: limits.append(limit))
        monkeypatch.setattr(connection, "_connect_devices", lambda handle: None)
        monkeypatch.setenv("ONEFOLD_STORE", os.environ["ONEFOLD_STORE"] + "-again")
        if not local_rank:
            os.environ.pop("LOCAL_RANK")
            os.environ.pop("LOCAL_WORLD_SIZE")
        forget_world()
        link = world().connection()
        assert gather_objects(rank, (0, 1)) == [0, 1]
        link.group((1, 0))
        link.group((rank,))
        told = [limit / timedelta(seconds=link.timeout) for limit in limits]
        world().disconnect()
        return asked, link.staged, gpus.current, told, gpus.synchronized

    return run_ranks(2, program)


BOTH = ["cpu:gloo,cuda:nccl"]


@pytest.mark.parametrize("local_rank", [True, False])
def test_nccl_where_each_rank_has_a_gpu(monkeypatch, local_rank):
    """NCCL's watchdog waits for twice as long in each group, and the end for the device."""
    assert _connected(monkeypatch, [[1, 2], [1, 2]], local_rank) == [
        (BOTH, False, 0, [2.0, 2.0], 1),
        (BOTH, False, 1, [2.0, 2.0], 1),
    ]


def test_nccl_where_each_process_sees_only_its_own_gpu(monkeypatch):
    found = _connected(monkeypatch, [[1], [2]], True)
    assert found == [(BOTH, False, 0, [2.0, 2.0], 1)] * 2


@pytest.mark.parametrize("seen", [[[1], [1]], [[1], []], [[], [2]], [[1, 2], []]])
def test_no_rank_takes_nccl_where_one_cannot(monkeypatch, seen):
    assert _connected(monkeypatch, seen, True) == [(["gloo"], True, 0, [], 0)] * 2


def test_the_time_of_a_back_end_that_torch_wraps():
    limits = []
    nccl = SimpleNamespace(_set_default_timeout=limits.append)
    for backend in (nccl, SimpleNamespace(wrapped_pg=nccl)):
        group = SimpleNamespace(_get_backend=lambda device, found=backend: found)
        named_groups.give_time(group, timedelta(seconds=2))
    assert limits == [timedelta(seconds=2)] * 2


def test_a_failed_program_does_not_wait_for_its_device(monkeypatch):
    def program():
        gpus = Gpus(monkeypatch, [1, 2])
        link = world().connection()
        link.staged = False
        try:
            raise ValueError("failed")
        except ValueError as error:
            link._note_failure(type(error), error, error.__traceback__)
        world().disconnect()
        return gpus.synchronized

    assert run_ranks(2, program) == [0, 0]


def test_cuda_is_the_own_device_before_the_ranks_are_connected(monkeypatch):
    gpus = Gpus(monkeypatch, [1, 2, 3])
    for name, value in {"RANK": "4", "WORLD_SIZE": "6", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    forget_world()
    try:
        assert (topology.current_cuda_index(), gpus.current) == (1, 1)
        gpus.current = 2  # the program's choice
        assert topology.current_cuda_index() == 2
    finally:
        monkeypatch.undo()
        forget_world()


def test_a_group_that_the_program_made_for_nccl_alone(monkeypatch, tmp_path):
    """Gloo stands for NCCL: a group of our own carries what is on the host, and the messages."""

    def program():
        rank = world().rank
        world().disconnect()
        gpus = Gpus(monkeypatch, [1, 2])
        store = dist.FileStore(str(tmp_path / "theirs"))
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        monkeypatch.setattr(dist, "get_backend_config", lambda: "cuda:nccl")
        backends, handles = [], []
        new_group = dist.new_group

        def group(ranks, limit, backend, **options):
            backends.append(backend)
            return new_group(ranks, limit, "gloo", **options)

        monkeypatch.setattr(dist, "new_group", group)
        monkeypatch.setattr(connection, "give_time", lambda handle, limit: None)
        monkeypatch.setattr(connection, "_connect_devices", handles.append)
        monkeypatch.setenv("ONEFOLD_STORE", str(tmp_path / "ours"))
        forget_world()
        link = world().connection()
        assert gather_objects(rank, (0, 1)) == [0, 1]
        own = link.message_group(1 - rank)
        found = handles == [own], own not in (None, dist.group.WORLD), gpus.current, backends
        world().disconnect()
        dist.destroy_process_group()
        return found

    assert run_ranks(2, program) == [(True, True, rank, BOTH) for rank in (0, 1)]


def test_groups_are_not_split_from_one_that_is_bound_to_a_device():
    """Such a split needs all ranks, but a group is made by its members alone."""

    def program():
        rank = world().rank
        whole = dist.group.WORLD
        seen = []
        new_group = dist.new_group
        device = torch.device("cuda", rank)
        whole.bound_device_id = device

        def group(*args, **options):
            seen.append(whole.bound_device_id)
            return new_group(*args, **options)

        named_groups.dist.new_group = group
        total = float(all_reduce(torch.ones(1), (0, 1), "sum")) if rank < 2 else 2.0
        kept = whole.bound_device_id == device
        whole.bound_device_id = None
        return total, seen, kept

    made = [(2.0, [None], True)] * 2
    assert run_ranks(3, program) == [*made, (2.0, [], True)]


def test_threads_ask_the_own_device(monkeypatch):
    """On device 0, where they begin, each question would take memory for their process."""
    entered = []

    @contextmanager
    def device(index):
        entered.append(index)
        yield

    monkeypatch.setattr(torch.cuda, "device", device)

    class Done:
        def is_completed(self):
            return entered == [3]

    watch = Watchdog(dist.HashStore(), 0, 100.0, 100.0)
    watch.device = 3
    pending = Pending("all_reduce", "", (), [Done()])
    watch._check_device(pending, 101.0)
    watch.stop()
    assert pending.works == ()
    event = SimpleNamespace(synchronize=lambda: entered.append("waited"))
    background._wait_for([("cuda:5", event)])
    assert entered == [3, "cuda:5", "waited"]
