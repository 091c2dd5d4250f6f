"""A tensor that was made as a copy of another is another variable of a graph."""

import copy

import pytest

import onefold as flow
from onefold import nn, sbp

PAIR = flow.placement("cpu", [0, 1])


def copied(weight):
    made = nn.Parameter(flow.zeros_like(weight.detach()))
    with flow.no_grad():
        made.copy_(weight)
    return made


def loaded(weight):
    one, two = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    if weight.is_global:
        one, two = (x.to_global(weight.placement, weight.sbp) for x in (one, two))
    one.weight = weight
    two.load_state_dict(one.state_dict())
    return two.weight


def given_data(weight):
    made = nn.Parameter(flow.zeros_like(weight.detach()))
    made.data = weight.data
    return made


# How another parameter of the same values is made.
COPIES = {
    "copy_": copied,
    "load_state_dict": loaded,
    ".data =": given_data,
    "Parameter of data": lambda weight: nn.Parameter(weight.data),
    "Parameter of a tensor": lambda weight: nn.Parameter(weight.detach()),
    "Parameter of a cast": lambda weight: nn.Parameter(weight.detach().to(flow.float32)),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "clone": lambda weight: nn.Parameter(weight.detach().clone()),
}
LAYOUTS = {"local": {}, "data-parallel": {"placement": PAIR, "sbp": sbp.broadcast}}


class Student(nn.Module):
    """Learns, while its teacher follows it slowly, or not at all."""

    def __init__(self, how, follows, layout):
        super().__init__()
        self.weight = nn.Parameter(flow.eye(3, **layout))
        teacher = COPIES[how](self.weight).requires_grad_(False)
        self.teacher = teacher if follows else None
        self.others = [teacher]  # of no module: the graph finds it as it is used

    def forward(self, x):
        teacher = self.others[0]
        if self.teacher is not None:
            with flow.no_grad():
                self.teacher.lerp_(self.weight.detach(), 0.1)
        return (x @ self.weight - x @ teacher + 1).square().mean()


def losses(how, follows, layout, as_graph):
    student = Student(how, follows, layout)
    optimizer = flow.optim.SGD([student.weight], lr=0.1)

    class Step(nn.Graph):
        def __init__(self):
            super().__init__()
            self.student = student
            self.add_optimizer(optimizer)

        def build(self, x):
            loss = self.student(x)
            loss.backward()
            return loss

    def step(x):
        optimizer.zero_grad()
        loss = student(x)
        loss.backward()
        optimizer.step()
        return loss

    x = flow.ones(2, 3, **layout)
    run = Step() if as_graph else step
    found = [run(x).item() for _ in range(4)]
    return found, student.weight.tolist(), student.others[0].tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("how", COPIES)
def test_a_copy_is_another_variable(how, follows, layout, world):
    eager, graph = (losses(how, follows, LAYOUTS[layout], each) for each in (False, True))
    assert graph == eager
    assert eager[0][0] > eager[0][1]


def test_buffers_of_one_origin_change_apart(world):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("one", flow.ones(2))
            self.register_buffer("two", flow.zeros(2))
            self.two.copy_(self.one)

    counts = Counts()

    class Step(nn.Graph):
        def __init__(self):
            super().__init__()
            self.counts = counts

        def build(self):
            self.counts.one.mul_(2)
            self.counts.two.mul_(10)
            return self.counts.one + self.counts.two

    step = Step()
    assert [step().tolist() for _ in range(2)] == [[12.0] * 2, [104.0] * 2]
    assert (counts.one.tolist(), counts.two.tolist()) == ([4.0] * 2, [100.0] * 2)


def test_names_of_one_tensor_are_one_variable(world):
    """Detached tensors change with it, in a graph as elsewhere."""
    weight = nn.Parameter(flow.ones(2))
    alias = weight.detach()

    class Step(nn.Graph):
        def __init__(self):
            super().__init__()
            self.weights = nn.ParameterList([weight])
            self.add_optimizer(flow.optim.SGD([weight], lr=0.5))

        def build(self):
            loss = (weight * alias).sum()
            loss.backward()
            return loss

    step = Step()
    assert [step().item() for _ in range(3)] == [2.0, 0.5, 0.125]
    assert alias.tolist() == weight.tolist() == [0.125] * 2
