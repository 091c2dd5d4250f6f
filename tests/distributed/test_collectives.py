"""Every collective between real processes, against numpy: dtypes, shapes, orders of ranks."""

import math
import os

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings, strategies as st
from launched import run_ranks

from onefold.distributed import collectives as c, transfer
from onefold.distributed.world import forget_world, world
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError

CPU = torch.device("cpu")
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
EIGHTS = [torch.float8_e4m3fn, torch.float8_e5m2]
INTS = [torch.int8, torch.int16, torch.int32, torch.int64]
UINTS = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
ALL = [*FLOATS, *EIGHTS, *INTS, *UINTS, *COMPLEX, torch.bool]
SHAPES = [(), (5,), (0,), (2, 3)]


def sample(dtype, shape, seed):
    """Values that every dtype holds, and whose sums over four ranks it holds as well."""
    values = np.random.default_rng(seed).integers(0, 3, shape)
    if dtype is torch.bool:
        return torch.from_numpy(np.asarray(values > 0))
    if dtype.is_complex:
        return torch.from_numpy(
            np.asarray(values + 1j * values[::-1] if shape else values + 1j)
        ).to(dtype)
    return torch.from_numpy(np.asarray(values)).to(torch.float32).to(dtype)


def as_numpy(t):
    if t.dtype in (torch.bfloat16, *EIGHTS):
        t = t.float()
    return t.resolve_conj().numpy()


def same(got, expected):
    assert got.dtype is expected.dtype
    assert got.shape == expected.shape
    assert torch.equal(
        got.contiguous().view(-1).view(torch.uint8),
        expected.contiguous().view(-1).view(torch.uint8),
    )


@pytest.mark.parametrize("n", [2, 4])
def test_all_reduce(n):
    ranks = tuple(range(n))
    cases = [
        (dtype, shape, op)
        for dtype in ALL
        for shape in SHAPES
        for op in ("sum", "max", "min")
        if op == "sum" or not dtype.is_complex
    ]

    def program():
        return [c.all_reduce(sample(d, s, world().rank), ranks, op) for d, s, op in cases]

    results = run_ranks(n, program)
    reduce = {"sum": np.add, "max": np.maximum, "min": np.minimum}
    for i, (dtype, shape, op) in enumerate(cases):
        parts = np.stack([as_numpy(sample(dtype, shape, r)) for r in ranks])
        with np.errstate(all="ignore"):
            expected = reduce[op].reduce(parts).astype(parts.dtype)
        for got in results:
            assert got[i].dtype is dtype
            np.testing.assert_array_equal(as_numpy(got[i]), expected, err_msg=f"{dtype} {op}")


def test_all_reduce_keeps_nan_and_infinity():
    rows = torch.tensor([[1.0, math.nan, -math.inf, -0.0], [math.nan, 2.0, math.inf, 0.0]])

    def program():
        mine = rows[world().rank]
        return [
            c.all_reduce(mine.to(d), (0, 1), op) for d in FLOATS for op in ("max", "min", "sum")
        ]

    for got in run_ranks(2, program):
        for i, dtype in enumerate(FLOATS):
            for j, f in enumerate((np.maximum, np.minimum, np.add)):
                with np.errstate(invalid="ignore"):
                    expected = f(*rows.numpy())
                np.testing.assert_array_equal(as_numpy(got[3 * i + j].float()), expected)
                assert got[3 * i + j].dtype is dtype


def test_all_reduce_leaves_its_input_and_takes_views():
    def program():
        base = torch.arange(6.0).view(2, 3) + world().rank
        kept = base.clone()
        result = c.all_reduce(base.t(), (0, 1), "sum")
        assert torch.equal(base, kept)
        inplace = c.all_reduce(base, (0, 1), "sum", inplace=True)
        assert inplace.data_ptr() == base.data_ptr()
        leaf = torch.ones(2, requires_grad=True)
        assert not c.all_reduce(leaf, (0, 1), "sum").requires_grad
        return result, inplace

    for turned, straight in run_ranks(2, program):
        expected = np.arange(6.0).reshape(2, 3) * 2 + 1
        np.testing.assert_array_equal(turned.numpy(), expected.T)
        np.testing.assert_array_equal(straight.numpy(), expected)


def test_max_of_complex_fails_before_anything_is_sent():
    def program():
        with pytest.raises(OnefoldTypeError, match="complex"):
            c.all_reduce(torch.ones(1, dtype=torch.complex64), (0, 1), "max")
        return float(c.all_reduce(torch.ones(1), (0, 1), "sum"))

    assert run_ranks(2, program) == [2.0, 2.0]


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_moving_every_dtype(dtype):
    shapes = [(2, 3), (), (0, 4), (1,)]
    order = (2, 0, 3, 1)

    def mine(source, target, shape):
        return sample(dtype, shape, 10 * source + target)

    def program():
        r = world().rank
        gathered = c.all_gather(mine(r, 9, shapes[r]), order, [shapes[q] for q in order])
        even = c.all_gather(mine(r, 8, (2, 2)), order, [(2, 2)] * 4)
        sent = [mine(r, q, shapes[q]) for q in order]
        exchanged = c.exchange(sent, [shapes[r]] * 4, order)
        src = mine(2, 7, (3, 2))
        cast = c.broadcast(src if r == 2 else None, (3, 2), dtype, CPU, 2, order)
        ring = [(r + 1) % 4, (r - 1) % 4]
        passed = transfer(
            [(q, mine(r, q, shapes[q])) for q in ring],
            [(q, shapes[r], dtype, CPU) for q in ring],
        )
        return gathered, even, exchanged, cast, passed

    for r, (gathered, even, exchanged, cast, passed) in enumerate(run_ranks(4, program)):
        for i, q in enumerate(order):
            same(gathered[i], mine(q, 9, shapes[q]))
            same(even[i], mine(q, 8, (2, 2)))
            same(exchanged[i], mine(q, r, shapes[r]))
        same(cast, mine(2, 7, (3, 2)))
        for i, q in enumerate([(r + 1) % 4, (r - 1) % 4]):
            same(passed[i], mine(q, r, shapes[r]))


sizes = st.integers(0, 3)
groups = st.permutations(range(4)).flatmap(
    lambda order: st.integers(1, 4).map(lambda count: tuple(order[:count]))
)


@settings(max_examples=15)
@given(
    ranks=groups,
    table=st.lists(
        st.lists(st.tuples(sizes, sizes), min_size=4, max_size=4), min_size=4, max_size=4
    ),
)
def test_exchange_of_any_shapes_within_any_group(ranks, table):
    def piece(source, target):
        rows, columns = table[source][target]
        count = rows * columns
        return (
            torch.arange(count * 2).view(columns, rows, 2).transpose(0, 1)[..., 0]
            + 100 * source
            + 10 * target
        )

    def program():
        r = world().rank
        if r not in ranks:
            return None
        received = c.exchange([piece(r, q) for q in ranks], [table[q][r] for q in ranks], ranks)
        gathered = c.all_gather(piece(r, r), ranks, [table[q][q] for q in ranks])
        return received, gathered

    for r, result in enumerate(run_ranks(4, program)):
        assert (result is None) == (r not in ranks)
        for i, q in enumerate(ranks if result else ()):
            np.testing.assert_array_equal(result[0][i].numpy(), piece(q, r).numpy())
            np.testing.assert_array_equal(result[1][i].numpy(), piece(q, q).numpy())


@settings(max_examples=15)
@given(
    messages=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.lists(sizes, max_size=2)), max_size=12
    )
)
def test_transfer_of_any_messages(messages):
    """(source, target, shape) in one global order, several between a pair, own ones too."""

    def content(number):
        return torch.full(messages[number][2], number, dtype=torch.int16)

    def program():
        r = world().rank
        sends = [(to, content(i)) for i, (source, to, _) in enumerate(messages) if source == r]
        recvs = [(source, shape, torch.int16, CPU) for source, to, shape in messages if to == r]
        return transfer(sends, recvs)

    for r, got in enumerate(run_ranks(4, program)):
        expected = [content(i) for i, message in enumerate(messages) if message[1] == r]
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            same(a, b)


def test_the_own_piece_is_a_copy():
    def program():
        t = torch.zeros(2)
        alone = c.exchange([t], [(2,)], (world().rank,))[0]
        pair = c.exchange([t, t], [(2,), (2,)], (0, 1))
        gathered = c.all_gather(t, (world().rank,), [(2,)])[0]
        passed = transfer([(world().rank, t)], [(world().rank, (2,), t.dtype, CPU)])[0]
        t += 1
        return [alone, *pair, gathered, passed]

    for pieces in run_ranks(2, program):
        assert all(not piece.any() for piece in pieces)


def test_large_messages_both_ways_do_not_block():
    count = 3_000_000  # more than the sockets hold

    def program():
        peer = 1 - world().rank
        sends = [(peer, torch.full((count,), world().rank, dtype=torch.int32)) for _ in range(2)]
        got = transfer(sends, [(peer, (count,), torch.int32, CPU)] * 2)
        return [int(t.min()) for t in got] + [int(t.max()) for t in got]

    assert run_ranks(2, program) == [[1] * 4, [0] * 4]


def test_overlapping_groups_in_program_order():
    """Groups are made when first used, by their members only."""
    order = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (0, 1, 2), (1, 2, 3), (3, 2, 1), (0, 1, 2, 3)]

    def program():
        r = world().rank
        total = torch.ones(1)
        return [float(c.all_reduce(total * r, g, "sum")) for g in order * 2 if r in g]

    for r, got in enumerate(run_ranks(4, program)):
        assert got == [float(sum(g)) for g in order * 2 if r in g]


def test_gather_objects_and_barrier():
    def program():
        r = world().rank
        c.barrier((0, 1, 2))
        found = c.gather_objects({"rank": r, "text": "x" * r}, (2, 0, 1))
        pair = c.gather_objects(r, (0, 1)) if r < 2 else None
        return found, pair, c.gather_objects([], (r,))

    for r, (found, pair, alone) in enumerate(run_ranks(3, program)):
        assert found == [{"rank": q, "text": "x" * q} for q in (2, 0, 1)]
        assert pair == ([0, 1] if r < 2 else None)
        assert alone == [[]]


def test_a_group_of_all_ranks_that_the_program_made_itself(tmp_path):
    def program():
        rank = world().rank
        world().disconnect()
        with pytest.raises(OnefoldRuntimeError, match="this world was left"):
            c.barrier((0, 1))
        store = dist.FileStore(str(tmp_path / "theirs"))
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        os.environ["ONEFOLD_STORE"] = str(tmp_path / "ours")
        forget_world()
        total = float(c.all_reduce(torch.ones(1), (0, 1), "sum"))
        world().disconnect()
        ours = torch.ones(1)
        dist.all_reduce(ours)
        dist.destroy_process_group()
        return total, float(ours)

    assert run_ranks(2, program) == [(2.0, 2.0)] * 2


def test_a_world_of_one_rank():
    def program():
        t = torch.ones(2)
        reduced = c.all_reduce(t, (0,), "sum")
        reduced += 1
        c.barrier((0,))
        cast = c.broadcast(t, (2,), t.dtype, CPU, 0, (0,))
        return t.tolist(), cast.tolist(), [p.tolist() for p in c.all_gather(t, (0,), [(2,)])]

    assert run_ranks(1, program) == [([1, 1], [1, 1], [[1, 1]])]
