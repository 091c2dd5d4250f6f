"""The communication log."""

import torch

from onefold.distributed.comm_log import CommLog, active, comm, record


def add(kind="all_gather", received=None, op="matmul"):
    received = received or {0: 4, 1: 8}
    record(kind, tuple(received), torch.float32, dict(reversed(received.items())), received, op)


def test_nothing_is_kept_without_a_listener():
    assert not active()
    add()
    with comm() as log:
        assert active()
    assert not active()
    assert log.records == []


def test_bytes_and_counts():
    with comm() as log:
        add()
        add("exchange", {1: 16, 2: 0})
    assert log.count() == 2
    assert log.count("exchange") == 1
    assert log.count("nothing") == 0
    assert [log.total_bytes(rank) for rank in range(4)] == [4, 24, 0, 0]
    assert log.total_bytes() == 28
    first = log.records[0]
    assert (first.kind, first.ranks, first.dtype) == ("all_gather", (0, 1), torch.float32)
    assert first.op == "matmul"
    assert first.line.startswith("test_comm_log.py:")
    assert first.total_bytes() == 12


def test_nested_logs_each_get_what_is_inside():
    with comm() as outer:
        add()
        with comm() as inner:
            add()
    assert (outer.count(), inner.count()) == (2, 1)


def test_logs_that_end_out_of_order():
    first, second = comm(), comm()
    one, two = first.__enter__(), second.__enter__()
    first.__exit__(None, None, None)
    add()
    second.__exit__(None, None, None)
    assert (one.count(), two.count()) == (0, 1)
    assert not active()


def test_a_record_does_not_change_with_its_caller():
    received = {0: 4}
    with comm() as log:
        record("broadcast", (0,), torch.int8, {}, received, "op", line="a.py:1 in f")
        received[0] = 99
    assert log.total_bytes(0) == 4
    assert log.records[0].line == "a.py:1 in f"


def test_the_table():
    with comm() as log:
        add()
    lines = str(log).splitlines()
    assert lines[0].split() == ["kind", "ranks", "dtype", "sent", "received", "op", "line"]
    assert lines[1].startswith("all_gather  (0, 1)  float32  12    12        matmul  test_comm_log")
    assert lines[2] == "1 collectives, 12 bytes received"
    assert str(CommLog()).splitlines()[-1] == "0 collectives, 0 bytes received"
