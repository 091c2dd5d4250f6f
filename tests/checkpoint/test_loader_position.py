"""A loader that is stopped in an epoch goes on with the next batch, drawn as it would have been."""

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

import onefold as flow
from onefold.utils.data import DataLoader, DistributedSampler, GlobalLoader, RandomSampler


class Rows(Dataset):
    """Samples with a random part, which notes what is read."""

    def __init__(self, noise=True):
        self.read = []
        self.noise = noise

    def __len__(self):
        return 10

    def __getitem__(self, index):
        self.read.append(index)
        return flow.tensor(float(index)) + (flow.rand(()) if self.noise else 0)


class Stream(IterableDataset):
    def __iter__(self):
        return (flow.tensor(float(i)) + flow.rand(()) for i in range(9))


def loaders(kind, data=None):
    if data is None:
        data = Rows()
    own = flow.Generator().manual_seed(4)
    place = flow.placement("cpu", [0, 1])
    return {
        "ordered": lambda: DataLoader(data, 3),
        "shuffled": lambda: DataLoader(data, 3, shuffle=True),
        "own generator": lambda: DataLoader(data, 3, shuffle=True, generator=own),
        "torch's": lambda: DataLoader(
            data, 3, shuffle=True, generator=torch.Generator().manual_seed(3)
        ),
        "sampler": lambda: DataLoader(data, 3, sampler=RandomSampler(data, generator=own)),
        "epochs": lambda: DataLoader(data, 3, sampler=DistributedSampler(data, 1, 0)),
        "stream": lambda: DataLoader(Stream(), 2),
        "global": lambda: GlobalLoader(data, place, batch_size=3, shuffle=True),
        "global, shuffled": lambda: GlobalLoader(DataLoader(data, 3, shuffle=True), place),
        "global stream": lambda: GlobalLoader(Stream(), place, batch_size=2),
    }[kind]()


KINDS = ["ordered", "shuffled", "own generator", "torch's", "sampler", "epochs", "stream"]
KINDS += ["global", "global, shuffled", "global stream"]


def train(loader, epochs, save_at=None, save=None):
    """All batches of some epochs; random numbers are drawn between them, as by dropout."""
    seen = []
    for _ in range(epochs):
        for x in loader:
            seen.append(x.tolist())
            flow.rand(3)
            if len(seen) == save_at:
                save()
    return seen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("save_at", [2, 4, 6])
def test_an_epoch_goes_on(world, tmp_path, kind, save_at):
    flow.manual_seed(1)
    loader = loaders(kind)
    state = {"loader": loader, "generator": flow.default_generator}
    seen = train(loader, 3, save_at, lambda: flow.checkpoint.save(tmp_path, state, save_at))
    flow.manual_seed(9)
    rows = Rows()
    again = loaders(kind, rows)
    flow.checkpoint.load(tmp_path, {"loader": again, "generator": flow.default_generator})
    done = (save_at - 1) // len(seen[: len(seen) // 3])
    assert train(again, 3 - done) == seen[save_at:]
    if "stream" not in kind:
        assert len(rows.read) == sum(len(batch) for batch in seen[save_at:])


START = {"batch": 0, "drawn_from": [], "now": [None]}


def test_between_epochs(world):
    loader = loaders("global")
    assert loader.state_dict() == {**START, "epoch": 0}
    train(loader, 2)
    state = loader.state_dict()
    assert state == {**START, "epoch": 2}
    again = loaders("global")
    again.load_state_dict(state)
    assert again.state_dict() == state and again.epoch == 2


def test_worker_processes(world):
    data = Rows(noise=False)
    flow.manual_seed(3)
    wanted = [x.tolist() for x in DataLoader(data, 3, shuffle=True)]
    flow.manual_seed(3)
    loader = DataLoader(data, 3, shuffle=True, num_workers=1)
    batches = iter(loader)
    assert next(batches).tolist() == wanted[0]
    state = loader.state_dict()
    del batches
    loader.load_state_dict(state)
    assert [x.tolist() for x in loader] == wanted[1:]


def test_a_state_of_another_loader(world):
    loader = DataLoader(Rows(), 3)
    for state in ({**START, "batch": -1}, {**START, "batch": 1}, {**START, "now": []}):
        with pytest.raises(ValueError, match="make the loader"):
            loader.load_state_dict({**state, "epoch": None})
    place = flow.placement("cpu", [0])
    by_torch = GlobalLoader(torch.utils.data.DataLoader(Stream(), 2), place)
    with pytest.raises(TypeError, match="does not know its position"):
        by_torch.state_dict()
