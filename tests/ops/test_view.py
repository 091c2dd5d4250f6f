"""Which splits a reshape carries over, and the errors of the view family."""

import pytest
import torch

import onefold as flow
from onefold.engine.ops.view import groups

P2 = flow.placement("cpu", [0, 1])
S0, S1 = flow.sbp.split(0), flow.sbp.split(1)


def laid_out(shape, sbp, placement=P2):
    return flow.randn(*shape, placement=placement, sbp=sbp)


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ((6, 4), (24,), (((0, 1), (0,)),)),
        ((6, 4, 5), (2, 3, 20), (((0,), (0, 1)), ((1, 2), (2,)))),
        ((1, 6, 1), (6,), (((1,), (0,)),)),
        ((), (1, 1), ()),
        ((0, 4), (0, 2, 2), (((0,), (0,)),)),
        ((2, 0, 3), (2, 0, 7, 3), (((0,), (0,)), ((1,), (1,)), ((2,), (3,)))),
    ],
)
def test_groups(before, after, wanted):
    assert groups(before, after) == wanted


@pytest.mark.parametrize(
    ("shape", "sbp", "size", "wanted"),
    [
        ((4, 6, 8), S0, (24, 8), S0),
        ((4, 6, 8), S1, (24, 8), None),  # not the outermost factor
        ((4, 6, 8), S1, (4, 2, 3, 8), S1),
        ((4, 3, 8), S1, (4, 3, 2, 4), S1),  # left alone, so it may be uneven
        ((3, 4), S0, (12,), None),
        ((6, 4), S0, (3, 2, 4), None),
        ((4, 6), S0, (2, 2, 6), S0),
    ],
)
def test_a_split_goes_along_where_it_can(shape, sbp, size, wanted):
    x = laid_out(shape, sbp)
    y = x.reshape(*size)
    assert y.sbp == (wanted,) if wanted else not y.sbp[0].is_split
    assert torch.equal(torch.from_numpy(y.numpy()), torch.from_numpy(x.numpy()).reshape(size))


def test_nested_splits_go_along():
    mesh = flow.placement("cpu", [[0, 1], [2, 3]])
    x = laid_out((8, 6), (S0, S0), mesh)
    assert x.reshape(2, 2, 2, 6).sbp == (S0, S1)
    assert x.reshape(48).sbp == (S0, S0)
    assert laid_out((2, 6), (S0, S1), mesh).reshape(12).sbp == (S0, S0)


def test_a_view_changes_with_the_tensor():
    x = flow.ones(2, 3)
    y = x.view(6)
    y[1:5].zero_()
    assert x.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (RuntimeError, lambda x: x.view(5)),
        (RuntimeError, lambda x: x.view(-1, -1)),
        (RuntimeError, lambda x: x.view(7, -1)),
        (IndexError, lambda x: flow.transpose(x, 0, 2)),
        (RuntimeError, lambda x: flow.permute(x, 0, 0)),
        (RuntimeError, lambda x: x.expand(6, 5)),
        (RuntimeError, lambda x: x.expand(4)),
        (IndexError, lambda x: flow.unsqueeze(x, 4)),
        (IndexError, lambda x: flow.squeeze(x, 2)),
        (RuntimeError, lambda x: flow.unflatten(x, 0, (4, 2))),
        (RuntimeError, lambda x: flow.flatten(x, 1, 0)),
        (RuntimeError, lambda x: flow.t(flow.ones(2, 2, 2))),
        (RuntimeError, lambda x: flow.diagonal(x, 0, 1, 1)),
        (RuntimeError, lambda x: flow.movedim(x, (0, 1), (0, 0))),
    ],
)
def test_errors(error, call):
    with pytest.raises(error) as caught:
        call(flow.ones(6, 4))
    assert isinstance(caught.value, flow.OnefoldError)


def test_sizes_in_a_list():
    assert flow.ones(6, 4).view([3, 8]).shape == (3, 8)
    assert flow.permute(flow.ones(6, 4), [1, 0]).shape == (4, 6)


def test_what_has_the_common_shape_is_not_expanded(world):
    weight = flow.ones(2, 3, requires_grad=True)
    same, expanded = flow.broadcast_tensors(weight, flow.ones(3))
    assert same is weight and expanded.shape == (2, 3)
    gamma = flow.distributions.Gamma(weight, flow.tensor(1.0))
    gamma.log_prob(flow.ones(2, 3)).sum().backward()
    assert gamma.concentration.grad is weight.grad is not None


@pytest.mark.parametrize(
    "call",
    [
        lambda lib, x: x.reshape(shape=(3, 4)),
        lambda lib, x: lib.reshape(input=x, shape=[4, -1]),
        lambda lib, x: x.permute(dims=(1, 0)),
        lambda lib, x: lib.permute(input=x, dims=(-1, 0)),
        lambda lib, x: x[:1].expand(size=(2, 6)),
        lambda lib, x: lib.broadcast_to(x[:1], size=(2, 6)),
        lambda lib, x: x.repeat(repeats=(1, 2)),
        lambda lib, x: x.tile(dims=(2,)),
        lambda lib, x: lib.arange(4).resize_(size=(2, 2)),
    ],
)
def test_sizes_by_their_name(world, call):
    wanted = call(torch, torch.arange(12).view(2, 6))
    assert call(flow, flow.arange(12).view(2, 6)).tolist() == wanted.tolist()
    with pytest.raises(TypeError):
        flow.ones(2, 6).reshape((3, 4), shape=(3, 4))
