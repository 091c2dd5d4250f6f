"""What compiled functions take and give besides tensors: dataclasses, slices, objects."""

import pickle
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field

import pytest

import onefold as flow
from onefold import nn
from onefold.errors import OnefoldTypeError


@dataclass
class Batch:
    x: flow.Tensor
    y: flow.Tensor | None = None
    parts: list = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Found:
    total: flow.Tensor
    batch: Batch


class Output(OrderedDict):
    """As those of model libraries: its values are attributes, too."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        object.__setattr__(self, key, value)


def add_up(batch):
    total = batch.x.sum() + sum(part.sum() for part in batch.parts)
    return Found(total if batch.y is None else total + batch.y, Batch(batch.x * 2))


def numbers(start):
    return flow.arange(start, start + 3).float()


@pytest.mark.parametrize("program", [flow.compile, nn.Graph.trace])
def test_dataclasses(program, world):
    made = program(add_up)
    for start in range(3):
        given = Batch(numbers(start), numbers(start + 1), [numbers(9), numbers(start)])
        ours, theirs = made(given), add_up(given)
        assert type(ours) is Found
        assert type(ours.batch) is Batch
        assert ours.total.tolist() == theirs.total.tolist()
        assert ours.batch.x.tolist() == theirs.batch.x.tolist()
        assert ours.batch.y is None


def test_gradients_reach_the_fields_of_a_dataclass(world):
    compiled = flow.compile(add_up)
    for _ in range(2):
        x = numbers(1).requires_grad_()
        compiled(Batch(x)).batch.x.sum().backward()
        assert x.grad.tolist() == [2, 2, 2]


def test_a_dataclass_of_another_form_is_captured_again(world):
    compiled = flow.compile(add_up)
    assert compiled(Batch(numbers(0))).total.item() == 3
    assert compiled(Batch(numbers(0), flow.ones(()))).total.item() == 4
    assert compiled(Batch(numbers(0), None, [numbers(0)])).total.item() == 6
    graph = nn.Graph.trace(add_up)
    graph(Batch(numbers(0)))
    with pytest.raises(OnefoldTypeError, match="was compiled for inputs nested as"):
        graph(Batch(numbers(0), numbers(0)))


@pytest.mark.parametrize("program", [flow.compile, nn.Graph.trace])
def test_dicts_of_other_classes(program, world):
    def function(x):
        many = defaultdict(list)
        many["x"].append(x + 1)
        return Output(logits=x * 2, many=many)

    made = program(function)
    for start in range(2):
        found = made(numbers(start))
        assert type(found) is Output
        assert found.logits is found["logits"]
        assert found.logits.tolist() == (numbers(start) * 2).tolist()
        assert found.many["x"][0].tolist() == numbers(start + 1).tolist()
        assert found.many["none"] == []


def test_slices_and_sizes_as_arguments(world):
    compiled = flow.compile(lambda x, part, shape: x[part].reshape(shape))
    x = flow.arange(8)
    for part, shape in [(slice(0, 4), x[:4].shape), (slice(4, 8), (2, 2)), (slice(0, 4), (4,))]:
        assert compiled(x, part, shape).tolist() == x[part].reshape(shape).tolist()
    end = flow.tensor(2)
    counting = flow.compile(lambda x, part: part.stop + x)
    assert counting(x, slice(None, end)).tolist() == (x + 2).tolist()
    assert counting(x, slice(None, end + 1)).tolist() == (x + 3).tolist()


class Holder:
    def __init__(self, value):
        self.value = value


def closure(x):
    y = x + 1
    return lambda: y


def generator(x):
    yield x + 1


OBJECTS = {
    "an attribute": (lambda x: Holder(x + 1), "Holder"),
    "in a list": (lambda x: (x, Holder([x + 1])), "Holder"),
    "a set": (lambda x: {x + 1}, "set"),
    "a closure": (closure, "function"),
    "a generator": (generator, "generator"),
    "a distribution": (lambda x: flow.distributions.Normal(x, x.exp()), "Normal"),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_that_hold_what_is_computed(name, world):
    function, kind = OBJECTS[name]
    with pytest.raises(OnefoldTypeError, match=f"holds tensors, {kind}, but a program gives"):
        flow.compile(function)(numbers(0))


def test_objects_from_outside_are_given_as_they_are(world):
    holder, model = Holder(numbers(0)), nn.Linear(3, 3)
    compiled = flow.compile(lambda x: (model(x) + holder.value, holder, model))
    for _ in range(2):
        assert compiled(numbers(1))[1:] == (holder, model)


@flow.compile
def twice(x):
    return x * 2


class Doubling:
    @flow.compile
    def double(self, x):
        return x * 2


def plain(x):
    return x + 1


def test_pickles(world):
    assert pickle.loads(pickle.dumps(twice)) is twice
    assert pickle.loads(pickle.dumps(Doubling.double)) is Doubling.double
    again = pickle.loads(pickle.dumps(flow.compile(plain, recompile_limit=3)))
    assert again(numbers(0)).tolist() == [1, 2, 3]
    assert again.size == 3
    model = flow.compile(nn.Linear(3, 3))
    expected = model(numbers(0)).tolist()
    again = pickle.loads(pickle.dumps(model))
    assert again(numbers(0)).tolist() == expected
