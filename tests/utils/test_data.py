"""Data sets and loaders: collation, seeds, workers, and global batches against whole ones."""

import collections
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from launched import run_ranks
from torch.utils import data as torch_data

import onefold as flow
from onefold.distributed.world import virtual_world
from onefold.utils import data

Pair = collections.namedtuple("Pair", "x y")
SIZE = 11


class Counted(data.Dataset):
    """Rows that know how often they were read."""

    def __init__(self, size=SIZE):
        self.read = collections.Counter()
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, place):
        self.read[place] += 1
        return {"x": np.full((2,), place, np.float32), "y": place, "name": f"row {place}"}


class Random(data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, place):
        return flow.rand(2)


class Count(data.IterableDataset):
    def __iter__(self):
        return iter(range(SIZE))


BATCHES = [
    [torch.ones(2), torch.zeros(2)],
    [np.float32(1), np.float32(2)],
    [np.ones((2, 1)), np.zeros((2, 1))],
    [1.5, 2.5],
    [(1, "a"), (2, "b")],
    [Pair(1, [2.0]), Pair(3, [4.0])],
    [{"a": 1, "b": {"c": torch.ones(1)}}] * 2,
    [True, False],
]


def as_torch(tree):
    return torch.utils._pytree.tree_map_only(flow.Tensor, lambda x: x.to_torch(), tree)


@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_collation_is_torchs(batch):
    ours, theirs = data.default_collate(batch), torch_data.default_collate(batch)
    assert not any(isinstance(x, torch.Tensor) for x in torch.utils._pytree.tree_leaves(ours))
    assert repr(as_torch(ours)) == repr(theirs)
    converted = as_torch(data.default_convert(batch))
    assert repr(converted) == repr(torch_data.default_convert(batch))


def test_collation_of_our_tensors():
    w = flow.ones(2, requires_grad=True)
    x, y = data.default_collate([(flow.ones(2), w), (flow.zeros(2), w)])
    assert x.tolist() == [[1, 1], [0, 0]]
    y.sum().backward()
    assert w.grad.tolist() == [2, 2]
    p = flow.placement("cpu", [0, 1])
    with pytest.raises(flow.errors.MixedTensorsError, match="GlobalLoader"):
        data.default_collate([flow.ones(2, placement=p, sbp=flow.sbp.broadcast)])


@pytest.mark.parametrize("w", [flow.zeros(2), flow.zeros(2, requires_grad=True)])
def test_collation_of_tensors_of_both_kinds(w):
    for batch, wanted in (([w, torch.ones(2)], [0, 1]), ([torch.ones(2), w], [1, 0])):
        made = data.default_collate(batch)
        assert isinstance(made, flow.Tensor)
        assert made.requires_grad == w.requires_grad
        assert made.tolist() == [[value] * 2 for value in wanted]
        assert next(iter(data.DataLoader(batch, 2))).tolist() == made.tolist()


def test_a_tensor_dataset_of_torchs_tensors_and_with_tensors_as_places():
    [row] = data.TensorDataset(torch.ones(3, 2))[0]
    assert isinstance(row, flow.Tensor)
    assert row.tolist() == [1, 1]
    [rows] = data.TensorDataset(flow.arange(4))[flow.tensor([0, 2])]
    assert rows.tolist() == [0, 2]


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_are_local_in_a_global_mode(workers):
    class Made(data.Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, place):
            return flow.full((2,), place)

    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter([flow.zeros(2), flow.ones(2)])

    p = flow.placement("cpu", [0, 1])
    with virtual_world(), flow.utils.global_view.global_mode(True, p, flow.sbp.broadcast):
        for rows in (Made(), Stream()):
            for batch in data.DataLoader(rows, 2, num_workers=workers):
                assert batch.is_local
                assert batch.tolist() == [[0, 0], [1, 1]]
                assert flow.ones(1).is_global
            [batch] = data.GlobalLoader(rows, p, batch_size=2, num_workers=workers)
            assert batch.tolist() == [[0, 0], [1, 1]]
        torchs = torch_data.DataLoader(
            Stream(), 2, num_workers=workers, collate_fn=data.default_collate
        )
        [batch] = data.GlobalLoader(torchs, p)
        assert batch.tolist() == [[0, 0], [1, 1]]
        assert flow.from_numpy(np.ones(2)).is_local


def test_a_tensor_dataset():
    rows = data.TensorDataset(flow.arange(4), flow.eye(4))
    assert len(rows) == 4
    assert [x.tolist() for x in rows[2]] == [2, [0, 0, 1, 0]]
    both = data.StackDataset(rows, data.Subset(data.ConcatDataset([rows, rows]), range(3, 7)))
    assert both[2][1][0].item() == 1
    rows[1][1].fill_(7)
    assert rows.tensors[1].tolist() == flow.eye(4).tolist()
    rows.tensors[1].fill_(3)
    assert rows[1][1].tolist() == [3] * 4
    w = flow.ones(2, 2, requires_grad=True)
    data.TensorDataset(w)[1][0].sum().backward()
    assert w.grad.tolist() == [[0, 0], [1, 1]]
    whole = flow.eye(4, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.split(0))
    assert data.TensorDataset(whole)[3][0].tolist() == [0, 0, 0, 1]
    for bad in ((), (flow.ones(2), flow.ones(3)), (flow.tensor(1.0),)):
        with pytest.raises(flow.errors.ShapeError, match="first dim"):
            data.TensorDataset(*bad)


def places(loader):
    return [x.tolist() for [x] in loader]


ROWS = data.TensorDataset(flow.arange(SIZE))


@pytest.mark.parametrize("workers", [0, 2])
def test_one_seed_gives_one_order(workers):
    def epochs(**options):
        flow.manual_seed(3)
        loader = data.DataLoader(ROWS, 4, **options)
        return places(loader), places(loader)

    first, second = epochs(shuffle=True, num_workers=workers)
    assert (first, second) == epochs(shuffle=True)
    assert first != second
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(SIZE))
    assert [len(batch) for batch in epochs(drop_last=True)[0]] == [4, 4]


def test_samplers_take_either_generator():
    def drawn(make, generator):
        return [list(make(generator)) for _ in range(2)]

    weights = [1.0, 0.0, 3.0]
    for make, oracle in (
        (lambda g: data.RandomSampler(range(9), generator=g), torch_data.RandomSampler),
        (lambda g: data.RandomSampler(range(9), True, 40, g), torch_data.RandomSampler),
        (lambda g: data.SubsetRandomSampler([2, 5, 7], g), torch_data.SubsetRandomSampler),
        (
            lambda g: data.WeightedRandomSampler(weights, 20, generator=g),
            torch_data.WeightedRandomSampler,
        ),
    ):
        assert isinstance(make(None), oracle)
        assert len(make(None)) == len(list(make(None)))
        one = drawn(make, flow.Generator().manual_seed(1))
        assert one == drawn(make, flow.Generator().manual_seed(1))
        seeded = torch.Generator().manual_seed(1)
        assert make(seeded).source is seeded
    theirs = torch_data.RandomSampler(range(9), generator=torch.Generator().manual_seed(1))
    ours = data.RandomSampler(range(9), generator=torch.Generator().manual_seed(1))
    assert list(ours) == list(theirs)
    assert set(data.WeightedRandomSampler(weights, 50)) == {0, 2}


def test_random_split():
    def parts(seed):
        return [part.indices for part in data.random_split(range(10), [0.25, 0.75], seed)]

    one = parts(flow.Generator().manual_seed(5))
    assert one == parts(flow.Generator().manual_seed(5))
    assert sorted(one[0] + one[1]) == list(range(10))
    assert [len(part) for part in one] == [3, 7]
    flow.manual_seed(5)
    assert parts(None) == one
    with pytest.raises(ValueError, match="Sum of input lengths"):
        data.random_split(range(3), [1, 1])


def test_workers_draw_different_numbers():
    flow.manual_seed(0)
    seen = []
    loader = data.DataLoader(Random(), 1, num_workers=2)
    for _ in range(2):
        seen += [tuple(x[0].tolist()) for x in loader]
    assert len(set(seen)) == len(seen) == 12
    flow.manual_seed(0)
    assert [tuple(x[0].tolist()) for x in loader] == seen[:6]


def test_the_worker_function_of_the_user_runs():
    def start(worker):
        assert data.get_worker_info().id == worker
        flow.manual_seed(9)

    loader = data.DataLoader(Random(), 3, num_workers=2, worker_init_fn=start)
    one, other = loader
    assert one.tolist() == other.tolist()


def test_loaders_without_batches_and_of_streams():
    assert [x.tolist() for x in data.DataLoader(Count(), 4)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10],
    ]
    singles = data.DataLoader(ROWS, batch_size=None)
    assert [x.item() for [x] in singles] == list(range(SIZE))
    chained = data.DataLoader(data.ChainDataset([Count(), Count()]), 22)
    assert len(next(iter(chained))) == 22


# Global batches.

LAYOUTS = [
    ([0], "S0"),
    ([0, 1], "S0"),
    ([0, 1, 2, 3], "S0"),
    ([0, 1], "B"),
    ([[0, 1], [2, 3]], "S0 B"),
    ([[0, 1], [2, 3]], "B S0"),
    ([[0, 1], [2, 3]], "S0 S0"),
    ([3, 1], "S0"),
]


def layout(ranks, text):
    sbps = {"S0": flow.sbp.split(0), "B": flow.sbp.broadcast}
    return flow.placement("cpu", ranks), [sbps[part] for part in text.split()]


@given(
    st.sampled_from(LAYOUTS),
    st.integers(1, SIZE + 1),
    st.booleans(),
    st.booleans(),
    st.integers(0, 3),
)
def test_global_batches_are_the_whole_ones(place, batch_size, shuffle, drop_last, epoch):
    with virtual_world():
        placement, nd_sbp = layout(*place)
        rows = Counted()
        loader = data.GlobalLoader(rows, placement, nd_sbp, batch_size, shuffle, drop_last)
        loader.set_epoch(epoch)
        order = torch_data.DistributedSampler(rows, 1, 0, shuffle)
        order.set_epoch(epoch)
        batches = list(torch_data.BatchSampler(order, batch_size, drop_last))
        assert len(loader) == len(batches)
        made = list(loader)
        assert [batch["y"].tolist() for batch in made] == batches
        for batch, wanted in zip(made, batches, strict=True):
            x = batch["x"]
            assert (x.placement, list(x.sbp)) == (placement, nd_sbp)
            assert x.numpy().tolist() == [[place] * 2 for place in wanted]
            assert [tuple(part.shape) for part in x.shards] == [
                x.meta.local_shape(i) for i in range(placement.num_ranks)
            ]
            assert batch["name"] == [f"row {place}" for place in wanted]
        assert rows.read == dict.fromkeys(chain(*batches), 1)


def test_the_default_layout_splits_the_first_axis(world):
    for ranks, text in (([0, 1], "S0"), ([[0, 1], [2, 3]], "S0 B")):
        placement, nd_sbp = layout(ranks, text)
        [x] = next(iter(data.GlobalLoader(ROWS, placement, batch_size=4)))
        assert list(x.sbp) == nd_sbp


def test_each_epoch_has_its_order(world):
    p = flow.placement("cpu", [0, 1])

    def epochs(first):
        loader = data.GlobalLoader(ROWS, p, batch_size=SIZE, shuffle=True, seed=2)
        loader.set_epoch(first)
        return places(loader) + places(loader)

    assert epochs(0)[1] == epochs(1)[0] != epochs(0)[0]


def test_a_loader_can_be_given(world):
    p = flow.placement("cpu", [0, 1, 2])
    flow.manual_seed(0)
    ours = data.DataLoader(ROWS, 4, shuffle=True, num_workers=2)
    flow.manual_seed(0)
    loader = data.GlobalLoader(ours, p)
    flow.manual_seed(0)
    assert sorted(chain(*places(loader))) == list(range(SIZE))
    theirs = torch_data.DataLoader(Counted(), 4)
    assert [batch["y"].shape[0] for batch in data.GlobalLoader(theirs, p)] == [4, 4, 3]
    stream = data.GlobalLoader(Count(), p, batch_size=4)
    assert [x.tolist() for x in stream] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]


def test_what_cannot_be_split(world):
    p = flow.placement("cpu", [0, 1])
    with pytest.raises(flow.errors.SbpError, match=r"must be split\(0\) or broadcast .* \(S1\)"):
        data.GlobalLoader(ROWS, p, flow.sbp.split(1))
    with pytest.raises(flow.errors.SbpError, match="broadcast on every axis"):
        data.GlobalLoader(ROWS, p, flow.sbp.partial_sum)
    with pytest.raises(TypeError, match="batch_size, num_workers"):
        data.GlobalLoader(data.DataLoader(ROWS), p, batch_size=2, num_workers=1)
    part = data.DataLoader(ROWS, sampler=data.DistributedSampler(ROWS, 2, 1))
    with pytest.raises(ValueError, match="num_replicas=2"):
        data.GlobalLoader(part, p)
    with pytest.raises(ValueError, match="batch_size"):
        data.GlobalLoader(data.DataLoader(ROWS, batch_size=None), p)
    with pytest.raises(flow.errors.ShapeError, match="collate_fn"):
        next(iter(data.GlobalLoader(ROWS, p, collate_fn=lambda rows: flow.ones(7))))
    for name in ("sampler", "batch_sampler"):
        with pytest.raises(TypeError, match=f"{name} cannot .* pass a DataLoader with that"):
            data.GlobalLoader(ROWS, p, **{name: data.SequentialSampler(ROWS)})


def test_torchs_tensors_become_global(world):
    p = flow.placement("cpu", [0, 1])
    rows = [torch.full((2,), float(place)) for place in range(4)]

    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(rows)

    for source in (rows, Stream()):
        for x in data.GlobalLoader(source, p, batch_size=2, collate_fn=torch.stack):
            assert x.is_global
            assert [tuple(part.shape) for part in x.shards] == [(1, 2)] * 2
    assert x.tolist() == [[2, 2], [3, 3]]


def _epochs(ranks, text, workers):
    rows = Counted()
    placement, nd_sbp = layout(ranks, text)
    loader = data.GlobalLoader(rows, placement, nd_sbp, 4, shuffle=True, num_workers=workers)
    made = [
        (b["x"].numpy().tolist(), b["y"].tolist(), [tuple(part.shape) for part in b["x"].shards])
        for _ in range(2)
        for b in loader
    ]
    return made, sum(rows.read.values())


@pytest.mark.parametrize(("ranks", "text"), [([0, 1], "S0"), ([0, 1], "B"), ([1], "S0")])
def test_launched_ranks_read_their_rows(ranks, text):
    with virtual_world():
        whole, count = _epochs(ranks, text, 0)
    found = run_ranks(2, _epochs, ranks, text, 0)
    for rank, (made, read) in enumerate(found):
        own = [[shapes[ranks.index(rank)]] if rank in ranks else [] for *_, shapes in whole]
        assert made == [(x, y, part) for (x, y, _), part in zip(whole, own, strict=True)]
        if rank not in ranks:
            assert read == 6  # one sample of each batch, for its shapes
        elif text == "B":
            assert read == count
    if len(ranks) == 2 and text == "S0":
        assert [read for _, read in found] == [12, 10]


def test_launched_ranks_with_workers():
    with virtual_world():
        whole = _epochs([0, 1], "S0", 0)[0]
    for made, _ in run_ranks(2, _epochs, [0, 1], "S0", 2):
        assert [batch[:2] for batch in made] == [batch[:2] for batch in whole]


def _names():
    p = flow.placement("cpu", [0, 1])
    rows = [(place, "a", ("b", {"c": "d"})) for place in range(3)]

    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(rows)

    return [
        [batch[1:] for batch in data.GlobalLoader(source, p, batch_size=2)]
        for source in (rows, Stream())
    ]


def test_launched_ranks_have_their_entries_of_what_is_no_tensor():
    full, none = [("a",), [("b",), {"c": ["d"]}]], [(), [(), {"c": []}]]
    assert run_ranks(2, _names) == [[[full, full]] * 2, [[full, none]] * 2]


def _orders():
    torch.manual_seed(flow.env.get_rank())
    sampler = torch_data.RandomSampler(ROWS)
    p = flow.placement("cpu", [0, 1])
    with pytest.raises(flow.errors.RankMismatch, match="one order"):
        next(iter(data.GlobalLoader(data.DataLoader(ROWS, 4, sampler=sampler), p)))
    shapes = [torch.ones(1 + flow.env.get_rank())] * 4
    with pytest.raises(flow.errors.RankMismatch, match="one shape"):
        next(iter(data.GlobalLoader(shapes, p, batch_size=2)))
    return list(data.DistributedSampler(ROWS, shuffle=False))


def test_ranks_that_differ_are_told():
    assert run_ranks(2, _orders) == [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 0]]


@pytest.mark.parametrize("workers", [0, 1])
def test_the_generator_of_a_loader_is_the_one_that_was_given(workers):
    for lib in (flow, torch):
        for source in (None, lib.Generator()):
            loader = lib.utils.data.DataLoader(
                range(4), 2, shuffle=True, num_workers=workers, generator=source
            )
            assert len(list(loader)) == 2 and loader.generator is source
