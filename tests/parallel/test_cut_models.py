"""pipeline: models that are cut into stages, with the numbers and names of torch."""

import warnings

import pytest
import torch
import torch.distributed.pipelining as theirs
from launched import run_ranks
from stage_programs import WIDTH, filled, joined, layer, read, rows, same

import onefold as flow
from onefold.distributed import pipelining as ours
from onefold.distributed.world import world
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError


def gpt(lib, dropout=0.0):
    """A model as a program for one device writes it: ops and positions between its modules."""
    nn = lib.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH)
            self.up = nn.Linear(WIDTH, 2 * WIDTH)
            self.down = nn.Linear(2 * WIDTH, WIDTH)
            self.drop = nn.Dropout(dropout)

        def forward(self, x, scale):
            return x + self.drop(self.down(lib.nn.functional.gelu(self.up(self.norm(x)))) * scale)

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(10, WIDTH)
            self.places = nn.Embedding(8, WIDTH)
            self.layers = nn.ModuleDict({str(i): Block() for i in range(4)})
            self.gain = nn.Parameter(lib.ones(WIDTH))
            self.register_buffer("shift", lib.full((1,), 0.1))
            self.head = nn.Linear(WIDTH, 10)

        def forward(self, words, scale=1.0):
            batch, length = words.shape
            x = self.words(words) + self.places(lib.arange(length))
            first = x
            for block in self.layers.values():
                x = block(x, scale)
            x = (x * self.gain + first).view(batch, length, WIDTH)
            return self.head(x + self.shift)

    return filled(lib, GPT().double(), 0)


WORDS = [[(i * 3 + j) % 10 for j in range(5)] for i in range(8)]
CUTS = {"layers.1": "BEGINNING", "layers.2": "END", "head": "BEGINNING"}


def loss_of(lib):
    return lambda y, words: lib.nn.functional.cross_entropy(y.flatten(0, 1), words.flatten())


def cut(lib, names, model, rows=2, cuts=CUTS, **kwargs):
    spec = {path: getattr(names.SplitPoint, point) for path, point in cuts.items()}
    example = lib.tensor(WORDS[:rows])
    return names.pipeline(model, (example,), mb_kwargs=kwargs, split_spec=spec)


def cut_and_train(lib, names, steps=2):
    """A program of torch or of onefold on four ranks, as `train`."""
    rank = world().rank
    pipe = cut(lib, names, gpt(lib), scale=0.5)
    stage = pipe.build_stage(rank, lib.device("cpu"))
    schedule = names.Schedule1F1B(stage, 4, loss_fn=loss_of(lib))
    optimizer = lib.optim.SGD(stage.submod.parameters(), lr=0.3)
    found, words = [], lib.tensor(WORDS)
    for _ in range(steps):
        losses = []
        optimizer.zero_grad()
        asked = {"target": words, "losses": losses} if rank == 3 else {}
        y = schedule.step(
            *((words,) if rank == 0 else ()), **asked, **({"scale": 0.5} if rank == 0 else {})
        )
        optimizer.step()
        found += [] if y is None else [read(y), *map(read, losses)]
    return found, {name: read(w.grad) for name, w in stage.submod.named_parameters()}


def test_a_model_is_cut_as_by_torch():
    def program():
        return [cut_and_train(flow, ours)]

    found = run_ranks(4, program, timeout=120)
    model = gpt(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    wanted, words = [], torch.tensor(WORDS)
    for _ in range(2):
        y = model(words, scale=0.5)
        losses = [loss_of(torch)(*pair) for pair in zip(y.chunk(4), words.chunk(4), strict=True)]
        wanted += [read(y), *map(read, losses)]
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
    outputs, grads = joined([rank[0] for rank in found])
    same(outputs, wanted)
    assert grads.keys() == dict(model.named_parameters()).keys()
    same(
        [grads[name] for name, _ in model.named_parameters()],
        [read(w.grad) for w in model.parameters()],
    )


@pytest.mark.usefixtures("world")
def test_the_parts_of_a_model():
    model = gpt(flow)
    pipe = cut(flow, ours, model)
    assert pipe.num_stages == pipe.info().num_stages == 4
    same([read(pipe(flow.tensor(WORDS[:2])))], [read(model(flow.tensor(WORDS[:2])))])
    states = [set(pipe.get_stage_module(i).state_dict()) for i in range(4)]
    assert set.union(*states) == set(model.state_dict())
    assert sum(map(len, states)) == len(model.state_dict())
    assert "gain" in states[2] and "shift" in states[2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch itself
        peers = cut(torch, theirs, gpt(torch))
    for index in range(4):
        names = {name for name, _ in pipe.get_stage_module(index).named_parameters()}
        assert names == {name for name, _ in peers.get_stage_module(index).named_parameters()}
    assert "arange" in str(pipe) and str(pipe).count("gives") == 4
    stage = ours.build_stage(pipe.get_stage_module(3), 3, pipe.info(), "cpu")
    assert (stage.is_last, stage.num_stages) == (True, 4)


@pytest.mark.usefixtures("world")
def test_modes_buffers_and_random_numbers_of_a_cut_model():
    model = flow.nn.Sequential(flow.nn.BatchNorm1d(4), flow.nn.Dropout(0.5), flow.nn.Linear(4, 4))
    x = rows(8).float()
    flow.manual_seed(0)
    pipe = ours.pipeline(model, (x,), split_spec={"1": ours.SplitPoint.END})
    assert model[0].num_batches_tracked.item() == 0
    one = pipe(x)
    flow.manual_seed(0)
    assert flow.equal(one, model(x))  # no number was drawn when it was cut
    assert not flow.equal(one, pipe(x))
    assert model[0].num_batches_tracked.item() == 3
    pipe.eval()
    assert flow.equal(pipe(x), pipe(x))


@pytest.mark.usefixtures("world")
def test_pipe_split_in_a_forward():
    class Two(flow.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = layer(), layer()

        def forward(self, x):
            y = self.one(x)
            ours.pipe_split()
            return {"y": self.two(y), "x": x}

    model = Two()
    pipe = ours.pipeline(model, (rows(2).float(),))
    x = rows(2).float()
    assert pipe.num_stages == 2 and flow.equal(pipe(x)["y"], model(x)["y"])
    assert pipe(x)["x"] is x


def between(function):
    """A model that calls a function between two modules."""

    class Between(flow.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = layer(), layer()

        def forward(self, x):
            return self.two(function(self.one(x)))

    return Between()


BEFORE_TWO = {"two": ours.SplitPoint.BEGINNING}


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("make_it", "error", "text"),
    [
        (lambda: ours.pipeline(abs, ()), OnefoldTypeError, "needs an onefold Module"),
        (
            lambda: ours.pipeline(layer(), (flow.ones(2, 4),), split_policy=abs),
            OnefoldTypeError,
            "takes no split_policy.*give split_spec the names",
        ),
        (
            lambda: ours.pipeline(between(abs), (), split_spec={"three": ours.SplitPoint.END}),
            OnefoldValueError,
            "names 'three', which is no submodule of Between; it has one, two",
        ),
        (
            lambda: ours.pipeline(between(abs), (), split_spec={"two": "end"}),
            OnefoldValueError,
            "it takes SplitPoint.BEGINNING and SplitPoint.END",
        ),
        (
            lambda: ours.pipeline(
                between(lambda x: x.add_(1)), (flow.ones(2, 4),), split_spec=BEFORE_TWO
            ),
            OnefoldRuntimeError,
            "changed in place between modules, at test_cut_models.py:.*write x = x",
        ),
        (
            lambda: ours.pipeline(
                between(lambda x: flow.nn.functional.dropout(x, 0.5)),
                (flow.ones(2, 4),),
                split_spec=BEFORE_TWO,
            ),
            OnefoldRuntimeError,
            "random numbers are drawn between modules, at test_cut_models.py:",
        ),
        (
            lambda: ours.pipeline(between(lambda x: x), (flow.ones(2, 4),), split_spec=BEFORE_TWO)(
                flow.ones(3, 4)
            ),
            OnefoldValueError,
            r"stage 0 was given float32 \(3, 4\), but pipeline\(\) traced the model with float32",
        ),
        (
            lambda: ours.pipeline(between(abs), (flow.ones(2, 4),)).get_stage_module(1),
            OnefoldValueError,
            "stage_idx must be 0 to 0, but is 1",
        ),
    ],
)
def test_what_cannot_be_cut(make_it, error, text):
    with pytest.raises(error, match=text):
        make_it()


class Counts(flow.nn.Module):
    """A layer that replaces its buffer in each call."""

    def __init__(self):
        super().__init__()
        self.layer = layer()
        self.register_buffer("count", flow.zeros(()))

    def forward(self, x):
        self.count = self.count + 1
        return self.layer(x) * self.count


@pytest.mark.usefixtures("world")
def test_buffers_that_a_forward_replaces():
    model = flow.nn.Sequential(Counts(), Counts())
    before = list(model.buffers())
    pipe = ours.pipeline(model, (rows(2).float(),), split_spec={"1": ours.SplitPoint.BEGINNING})
    assert all(one is other for one, other in zip(model.buffers(), before, strict=True))
    for count in (1.0, 2.0):
        pipe(rows(2).float())
        assert [buffer.item() for buffer in pipe.buffers()] == [count, count]
    with pytest.raises(OnefoldRuntimeError, match="of Counts replaces its buffer 'count'"):
        ours.pipeline(Counts(), (rows(2).float(),), split_spec={"layer": ours.SplitPoint.END})


OTHER = flow.ones(4)


@pytest.mark.usefixtures("world")
def test_any_names_of_the_model_are_those_of_the_stages():
    modules, scales = ("calls", "result", "part"), ("takes", "gives", "is_last", "example")
    model = flow.nn.Module()
    for name in modules:
        model.add_module(name, layer())
    for name in scales:
        model.register_parameter(name, flow.nn.Parameter(flow.full((4,), 2.0)))
    model.register_buffer("constant_0", flow.full((4,), 3.0))

    def forward(x):
        for name in modules:
            x = getattr(model, name)(x) + model.constant_0
        for name in scales:
            x = x * getattr(model, name)
        return x + OTHER

    model.forward = forward
    x = rows(2).float()
    pipe = ours.pipeline(model, (x,), split_spec={"result": ours.SplitPoint.BEGINNING})
    assert flow.equal(pipe(x), model(x))
    of_stages = [set(pipe.get_stage_module(i).state_dict()) for i in range(2)]
    assert set.union(*of_stages) == set(model.state_dict())


@pytest.mark.usefixtures("world")
def test_shared_parameters_of_a_cut_model():
    model = between(abs)
    model.two.weight = model.one.weight
    with pytest.warns(UserWarning, match=r"one.weight is a parameter of the stages \[0, 1\]"):
        ours.pipeline(model, (flow.ones(2, 4),), split_spec=BEFORE_TWO)
