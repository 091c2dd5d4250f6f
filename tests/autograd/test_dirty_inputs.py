"""ctx.mark_dirty: a Function that changes its inputs in place, as in torch."""

import pytest
import torch

import onefold as flow
from onefold.engine.sbp import parse


def functions_of(lib):
    class Scaled(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.mark_dirty(x)
            x.mul_(factor)
            ctx.factor = factor
            return x

        @staticmethod
        def backward(ctx, dy):
            return dy * ctx.factor, None

    class Relu(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.clamp_(min=0)
            ctx.mark_dirty(x)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, dy):
            (y,) = ctx.saved_tensors
            return dy * (y > 0)

    class AddAndDouble(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            x.add_(y)
            ctx.mark_dirty(x)
            return x, x * 2

        @staticmethod
        def backward(ctx, dx, dz):
            return dx + 2 * dz, dx + 2 * dz

    class Kept(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x * 2

        @staticmethod
        def backward(ctx, dy):
            return dy * 2

    return Scaled, Relu, AddAndDouble, Kept


def an_input(functions, x):
    y = x.clone()
    made = functions[0].apply(y, 3.0)
    assert made is y and y.requires_grad
    return (made * y).sum()


def what_is_saved(functions, x):
    y = functions[1].apply(x * 1)
    return (y * y * x).sum()


def a_view(functions, x):
    y = x * 1
    part = y[:2]
    assert functions[0].apply(part, 3.0) is part
    return (y * y).sum()


def a_base(functions, x):
    y = x * 1
    part = y[:2]
    functions[0].apply(y, 3.0)
    return (part * part).sum()


def several_outputs(functions, x):
    y, other = functions[2].apply(x * 1, x)
    return (y * y + other).sum()


def without_history(functions, x):
    buffer = x.detach() * 0
    y, other = functions[2].apply(buffer, x)
    assert buffer is y and buffer.requires_grad
    return (y * other).sum()


PROGRAMS = [an_input, what_is_saved, a_view, a_base, several_outputs, without_history]
VALUES = [1.0, -2.0, 3.0, -4.0]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("sbp", ["", "(B)", "(S0)"])
def test_values_and_gradients_are_torchs(program, sbp, world):
    theirs = torch.tensor(VALUES, requires_grad=True)
    wanted = program(functions_of(torch), theirs)
    wanted.backward()
    layout = {"placement": flow.placement("cpu", [0, 1]), "sbp": parse(sbp)} if sbp else {}
    ours = flow.tensor(VALUES, requires_grad=True, **layout)
    loss = program(functions_of(flow), ours)
    loss.backward()
    assert loss.item() == wanted.item()
    assert ours.grad.tolist() == theirs.grad.tolist()


def test_in_a_graph(world):
    class Step(flow.nn.Graph):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))

        def build(self, x):
            loss = (relu.apply(self.model(x)) ** 2).sum()
            loss.backward()
            return loss

    relu = functions_of(flow)[1]
    x = flow.tensor([VALUES])
    losses = []
    for graph in (False, True):
        flow.manual_seed(0)
        model = flow.nn.Linear(4, 6)
        if graph:
            step = Step(model)
            losses.append([step(x).item() for _ in range(3)])
            continue
        optimizer = flow.optim.SGD(model.parameters(), lr=0.1)
        losses.append([])
        for _ in range(3):
            loss = (relu.apply(model(x)) ** 2).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0] == losses[1]


def test_where_nothing_is_recorded(world):
    scaled = functions_of(flow)[0]
    x = flow.ones(2, requires_grad=True)
    with flow.no_grad():
        assert scaled.apply(x, 3.0) is x and x.tolist() == [3, 3]
    y = flow.ones(2)
    assert scaled.apply(y, 2.0) is y and not y.requires_grad


def test_errors_are_torchs(world):
    for lib in (torch, flow):
        scaled, _, _, kept = functions_of(lib)
        x = lib.ones(2, requires_grad=True)
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            scaled.apply(x, 3.0)
        with pytest.raises(RuntimeError, match=r"marked as dirty.*not returned"):
            kept.apply(x * 1)
        y = x * 1
        square = y * y
        scaled.apply(y, 2.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            square.sum().backward()
        if lib is flow:
            assert x.tolist() == [1, 1]  # an error changes nothing
