"""Updates on the CPU: small parameters are joined and large ones cut, which changes no number."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import onefold as flow
from onefold.kernels.update_pieces import pieces
from onefold.kernels.update_rule_ref import update_by_rule
from onefold.kernels.update_rules import rmsprop

SHAPES = [(3, 4), (5,), (), (0, 2), (300, 400), (7, 2), (2, 3, 5, 4)]
RULES = ["RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop", "LARS"]


class Calls(TorchDispatchMode):
    """The ops of torch that run, without views; the elements of the largest tensor one makes."""

    def __init__(self):
        super().__init__()
        self.count = self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if func._schema.name not in ("aten::view", "aten::slice", "aten::split_with_sizes"):
            self.count += 1
            if isinstance(made, torch.Tensor):
                self.largest = max(self.largest, made.numel())
        return made


def parameters(dtype):
    torch.manual_seed(0)
    found = []
    for shape in SHAPES:
        values, grads = (torch.randn(shape, dtype=torch.float64).to(dtype) for _ in range(2))
        if len(shape) == 4:
            values = values.contiguous(memory_format=torch.channels_last)
        found.append(flow.nn.Parameter(flow.from_torch(values)))
        found[-1].grad = flow.from_torch(grads)
    return found


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", RULES)
def test_together_parameters_change_as_alone(one_thread, name, dtype):
    together, alone = parameters(dtype), parameters(dtype)
    make = getattr(flow.optim, name)
    optimizers = [make(together, lr=0.1), *[make([p], lr=0.1) for p in alone]]
    for _ in range(3):
        for optimizer in optimizers:
            optimizer.step()
    for p, q in zip(together, alone, strict=True):
        assert torch.equal(p.to_torch(), q.to_torch())


def test_small_parameters_take_the_ops_of_one_and_large_ones_stay_in_the_cache(one_thread):
    def step(shapes):
        given = [torch.ones(shape) for shape in shapes]
        lists = [[x.clone() for x in given] for _ in range(3)]
        numbers = {"lr": 0.1, "alpha": 0.5, "one_minus_alpha": 0.5, "eps": 1e-8, "momentum": 0.0}
        with Calls() as calls:
            params, grads, squares = lists
            states = {"square_avg": squares}
            update_by_rule(rmsprop, params, grads, states, {**numbers, "eps_in_root": False})
        return calls

    one = step([(8, 8)])
    assert step([(8, 8)] * 50).count <= one.count + 10
    assert step([(400, 500)]).largest <= 2**15


def test_a_skipped_step_changes_no_joined_parameter(one_thread):
    params = parameters(torch.float32)
    before = [p.clone() for p in params]
    optimizer = flow.optim.RMSprop(params, lr=0.1)
    scaler = flow.amp.GradScaler(init_scale=2.0)
    scaler.scale(flow.ones(()))
    params[1].grad[0] = float("inf")
    scaler.step(optimizer)
    for p, q in zip(params, before, strict=True):
        assert torch.equal(p.detach().to_torch(), q.detach().to_torch())


def test_rows_of_other_dtypes_or_strides_are_not_joined(one_thread):
    x, y = torch.ones(4, 6), torch.ones(3)
    rows = [(x, x, None), (y, y, y), (x.t(), x.t(), None), (y, y.double(), y), (y, y, y)]
    assert [(piece.index, len(piece.rows)) for piece in pieces(rows[1:], True)] == [
        (1, 1), (0, 1), (2, 1), (3, 1)
    ]  # fmt: skip
    assert [len(piece.rows) for piece in pieces([rows[1]] * 3, True)] == [3]
    assert [piece.index for piece in pieces([rows[1]] * 3, False)] == [0, 1, 2]
