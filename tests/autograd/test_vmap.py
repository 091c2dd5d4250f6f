"""vmap calls a function once for all rows, or for each row where it must: with the same results."""

import contextlib

import numpy as np
import pytest
from torch.utils._pytree import tree_leaves
from vmap_checks import Calls, by_rows

import onefold as flow

F = flow.nn.functional


class Squared(flow.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * 2 * x


class World:
    """Tensors that functions read, and may change."""

    def __init__(self):
        flow.manual_seed(0)
        self.x = flow.randn(3, 4, dtype=flow.float64, requires_grad=True)
        self.y = flow.randn(3, 4, dtype=flow.float64)
        self.w = flow.randn(4, 2, dtype=flow.float64, requires_grad=True)
        self.b = flow.randn(4, dtype=flow.float64)
        self.i = flow.tensor([0, 2, 1])
        self.generator = flow.Generator().manual_seed(3)

    def state(self):
        tensors = [vars(self)[name].detach().numpy().copy() for name in "xywbi"]
        gradients = [None if t.grad is None else t.grad.numpy() for t in (self.x, self.w, self.b)]
        return tensors, gradients, flow.get_rng_state(), self.generator.get_state()


AT_ONCE, FOR_EACH = {}, {}  # functions of the world


def at_once(function):
    AT_ONCE[function.__name__] = function
    return function


def for_each(function):
    FOR_EACH[function.__name__] = function
    return function


@for_each
def write_an_argument(m):
    return flow.vmap(lambda row: row.add_(1))(m.y)


@for_each
def write_a_part_of_an_argument(m):
    def f(row):
        row[0] = 7.0
        return row * 2

    return flow.vmap(f)(m.y)


@for_each
def write_a_tensor_from_outside(m):
    return flow.vmap(lambda row: m.b.add_(row).sum())(m.y)


@for_each
def write_a_view_of_a_tensor_from_outside(m):
    def f(row):
        m.b[1:].mul_(2)
        return row + m.b

    return flow.vmap(f)(m.y)


@at_once
def write_what_it_made(m):
    def f(row):
        made = flow.zeros(4, dtype=flow.float64)
        made[1:3] = row[:2]
        made.mul_(3)
        made[0].fill_(2.0)
        made.view(2, 2)[1].add_(row[3])
        return made

    return flow.vmap(f)(m.x)


@at_once
def write_by_mask_and_index(m):
    def f(row, i):
        made = row * 1
        made[row > 0] = 0.0
        made[i] = 5.0
        return made

    return flow.vmap(f)(m.x, m.i)


@at_once
def write_in_place_in_a_layer(m):
    return flow.vmap(lambda row: F.relu(row * 2, inplace=True))(m.x)


@for_each
def write_off_the_tape(m):
    def f(row):
        made = row * 2
        with flow.no_grad():
            made.mul_(2)
        return (made * made).sum()

    return flow.vmap(f)(m.x)


@for_each
def write_the_data(m):
    def f(row):
        made = row * 2
        made.data.mul_(2)
        return made.sin().sum()

    return flow.vmap(f)(m.x)


@for_each
def set_a_gradient(m):
    def f(row):
        m.b.grad = row * 1
        return row

    return flow.vmap(f)(m.y)


@for_each
def call_backward(m):
    def f(row):
        (row @ m.w).sum().backward()
        return row

    return flow.vmap(f)(m.y)


@at_once
def read_a_value_that_all_rows_have(m):
    return flow.vmap(lambda row: row * float(m.b.sum()) if bool(row.sum() < 99) else row)(m.y)


@for_each
def read_a_value(m):
    return flow.vmap(lambda row: row * row.sum().item())(m.y)


@for_each
def branch(m):
    return flow.vmap(lambda row: row * 2 if bool(row.sum() > 0) else row - 1)(m.y)


@for_each
def swallow_the_error(m):
    def f(row):
        with contextlib.suppress(RuntimeError):
            return row * row.sum().item()
        return row * 0

    return flow.vmap(f)(m.y)


@at_once
def index_by_a_row(m):
    return flow.vmap(lambda row, i: row[i])(m.x, m.i)


@at_once
def gradients_inside(m):
    return flow.vmap(flow.func.grad(lambda row: (row @ m.w).sin().sum()))(m.x)


@at_once
def gradients_outside(m):
    return flow.func.grad(lambda w: flow.vmap(lambda row: (row @ w).tanh().sum())(m.y).sum())(m.w)


@at_once
def gradients_of_gradients(m):
    def loss(w):
        return flow.vmap(flow.func.grad(lambda row: (row @ w).sin().sum()))(m.y).square().sum()

    return flow.func.grad(loss)(m.w)


@at_once
def autograd_grad_for_what_is_outside(m):
    def f(row):
        return flow.autograd.grad((row @ m.w).sin().sum(), m.w, create_graph=True)[0]

    return flow.vmap(f)(m.x)


@for_each
def autograd_grad_beyond_the_arguments(m):
    def f(row):
        return flow.autograd.grad((row * row).sum(), m.x, create_graph=True)[0]

    return flow.vmap(f)(m.x)


@at_once
def a_tape_from_outside_that_is_kept(m):
    made = m.w.sin()
    return flow.vmap(lambda r: flow.autograd.grad((r @ made).sum(), m.w, retain_graph=True)[0])(m.y)


@for_each
def a_retained_gradient(m):
    made = m.w.sin()
    made.retain_grad()
    found = flow.vmap(lambda r: flow.autograd.grad((r @ made).sum(), made, retain_graph=True)[0])(
        m.y
    )
    return found, made.grad


@at_once
def hessians(m):
    return flow.vmap(flow.func.hessian(lambda row: (row**3).sum() * row[0]))(m.x)


@at_once
def jvps(m):
    def f(row, tangent):
        return flow.func.jvp(lambda row: row.sin() * row.sum(), (row,), (tangent,))

    return flow.vmap(f)(m.x, m.y)


@at_once
def nested(m):
    return flow.vmap(lambda a: flow.vmap(lambda b: (a * b).sum() * m.w.sum())(m.y))(m.x)


@at_once
def nested_with_gradients(m):
    def f(a):
        return flow.vmap(lambda b: (a * b).sin().sum())(m.y).sum()

    return flow.vmap(flow.func.grad(f))(m.x)


@for_each
def nested_write(m):
    def f(a):
        total = flow.zeros(4, dtype=flow.float64)
        flow.vmap(lambda b: total.add_(b).sum())(m.y)
        return total * a

    return flow.vmap(f)(m.x)


@for_each
def draw_the_same(m):
    return flow.vmap(lambda row: F.dropout(row, 0.5), randomness="same")(m.y)


@for_each
def draw_from_a_generator(m):
    def f(row):
        return row + flow.rand(4, generator=m.generator)

    return flow.vmap(f, randomness="different")(m.y)


@for_each
def a_function_with_a_gradient_of_its_own(m):
    return flow.vmap(lambda row: Squared.apply(row).sum())(m.x)


@for_each
def a_function_of_what_is_outside(m):
    return flow.vmap(lambda row: (Squared.apply(m.w) * row[0]).sum())(m.y)


@at_once
def gradients_of_a_function(m):
    return flow.vmap(flow.func.grad(lambda row: Squared.apply(row).sum()))(m.y)


@for_each
def a_hook(m):
    def f(row):
        made = row * 2
        made.register_hook(lambda gradient: gradient * 3)
        return made.sin()

    return flow.vmap(f)(m.x)


@at_once
def a_hook_of_a_gradient_inside(m):
    def f(row):
        made = row * 2
        made.register_hook(lambda gradient: gradient * 3)
        return made.sin().sum()

    return flow.vmap(flow.func.grad(f))(m.y)


@for_each
def a_checkpoint(m):
    return flow.vmap(lambda row: flow.checkpoint.checkpoint(lambda r: (r @ m.w).sin(), row))(m.x)


@for_each
def batch_norm_that_trains(m):
    layer = flow.nn.BatchNorm1d(4, dtype=flow.float64)
    rows = flow.arange(2.0, dtype=flow.float64).view(2, 1)
    made = flow.vmap(lambda row: layer(row.expand(2, 4) * rows))(m.y)
    return made.detach(), layer.running_mean, layer.running_var, layer.num_batches_tracked


@at_once
def results_have_memory_of_their_own(m):
    def f(row):
        made = row * 2
        return row, row[1:], made, made

    found = flow.vmap(f)(m.y)
    found[0].add_(1)
    found[1].add_(2)
    found[2].add_(3)
    return found


@at_once
def results_of_no_row(m):
    return flow.vmap(lambda row: (m.b, m.b * 2, row), out_dims=(0, None, 1))(m.y)


@at_once
def a_distribution_that_checks_its_parameters(m):
    return flow.vmap(lambda row: flow.distributions.Normal(row, 1.0).log_prob(row * 2))(m.x)


@at_once
def dtypes_of_scalars(m):
    narrow = m.y.float()
    return flow.vmap(lambda s, row: (s * row, row**s, s + 1))(m.y[:, 0].abs(), narrow)


@at_once
def a_compiled_function(m):
    return flow.vmap(flow.compile(lambda row: (row * 2).sin()))(m.y)


@at_once
def in_a_compiled_function(m):
    return flow.compile(flow.vmap(lambda row: (row @ m.w).sin().sum()))(m.x)


def run(function):
    """The results of a function, gradients through them, and the state that it leaves."""
    world = World()
    found = [x for x in tree_leaves(function(world)) if isinstance(x, flow.Tensor)]
    values = [x.detach().numpy().copy() for x in found]
    flags = [x.requires_grad for x in found]
    ends = [x for x in found if x.requires_grad]
    if ends:
        sum((x * x.detach().sin()).sum() for x in ends).backward()
    return [values, flags, world.state()]


def same(found, wanted):
    found, wanted = tree_leaves(found), tree_leaves(wanted)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        if isinstance(other, np.ndarray):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            tol = 1e-5 if other.dtype == np.float32 else 1e-9
            np.testing.assert_allclose(one, other, rtol=tol, atol=tol)
        else:
            assert one == other


@pytest.mark.parametrize("name", [*AT_ONCE, *FOR_EACH])
def test_functions_give_what_a_call_for_each_row_gives(name):
    function = (AT_ONCE | FOR_EACH)[name]
    with by_rows():
        wanted = run(function)
    with Calls() as calls:
        found = run(function)
    same(found, wanted)
    assert bool(calls.refusals) is (name in FOR_EACH), calls.refusals
    assert not calls.looped
