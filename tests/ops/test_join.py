"""Layouts and errors of joining and parting."""

import pytest
import torch

import onefold as flow

P2 = flow.placement("cpu", [0, 1])
S0, S1, B = flow.sbp.split(0), flow.sbp.split(1), flow.sbp.broadcast
PARTIAL = flow.sbp.partial_sum


def test_other_dims_stay_split():
    x = flow.randn(6, 4, placement=P2, sbp=S0)
    assert flow.cat([x, x], 1).sbp == (S0,)
    assert flow.stack([x, x], 0).sbp == (S1,)
    assert [part.sbp for part in flow.split(x, 2, 1)] == [(S0,), (S0,)]
    assert [part.sbp for part in flow.unbind(x, 1)] == [(S0,)] * 4


def test_partial_sums_pass_together():
    x = flow.ones(6, 4, placement=P2, sbp=PARTIAL)
    assert flow.cat([x, x]).sbp == (PARTIAL,)
    assert flow.chunk(x, 2)[0].sbp == (PARTIAL,)


def test_along_a_split_dim_the_tensors_are_gathered():
    x = flow.arange(6, placement=P2, sbp=S0)
    assert flow.cat([x, x]).tolist() == [0, 1, 2, 3, 4, 5] * 2
    assert [part.tolist() for part in flow.split(x, 4)] == [[0, 1, 2, 3], [4, 5]]


def test_one_unused_part_gets_zeros():
    x = flow.ones(5, 2, requires_grad=True)
    flow.split(x, [1, 3, 1])[1].sum().backward()
    assert x.grad.tolist() == [[0.0] * 2, [1.0] * 2, [1.0] * 2, [1.0] * 2, [0.0] * 2]
    y = flow.ones(3, requires_grad=True)
    flow.unbind(y)[2].backward()
    assert y.grad.tolist() == [0.0, 0.0, 1.0]


def test_no_parts_of_an_empty_dim():
    assert flow.unbind(flow.ones(0, 3)) == ()


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (RuntimeError, lambda x: flow.cat([])),
        (TypeError, flow.cat),
        (TypeError, lambda x: flow.cat([x, 1])),
        (RuntimeError, lambda x: flow.cat([x, flow.ones(6, 5)])),
        (RuntimeError, lambda x: flow.cat([x, flow.ones(6)])),
        (IndexError, lambda x: flow.cat([x, x], 2)),
        (RuntimeError, lambda x: flow.stack([x, flow.ones(4)])),
        (RuntimeError, lambda x: flow.split(x, [2, 2])),
        (RuntimeError, lambda x: flow.split(x, [2])),
        (RuntimeError, lambda x: flow.split(x, -1)),
        (RuntimeError, lambda x: flow.split(x, 0)),
        (RuntimeError, lambda x: flow.chunk(x, 0)),
        (RuntimeError, lambda x: flow.hsplit(x, 3)),
        (RuntimeError, flow.meshgrid),
        (RuntimeError, lambda x: flow.unbind(flow.ones(()))),
    ],
)
def test_errors(error, call):
    with pytest.raises(error) as caught:
        call(flow.ones(6, 4))
    assert isinstance(caught.value, flow.OnefoldError)


def test_torchs_names_of_the_sizes(world):
    """Methods of torch take split_size, its function split_size_or_sections."""
    x = flow.arange(10).view(2, 5)
    for sizes in (2, [3, 2]):
        wanted = [part.tolist() for part in torch.arange(10).view(2, 5).split(sizes, dim=1)]
        assert [part.tolist() for part in x.split(split_size=sizes, dim=1)] == wanted
        parts = flow.split(x, split_size_or_sections=sizes, dim=1)
        assert [part.tolist() for part in parts] == wanted
    with pytest.raises(TypeError, match="pass one size"):
        x.split(dim=1)


def test_tensors_of_two_shapes_are_not_stacked(world):
    """The message is torch's, which names both shapes."""
    parts = [torch.ones(2), torch.ones(2), torch.ones(3)]
    with pytest.raises(RuntimeError) as wanted:
        torch.stack(parts)
    with pytest.raises(RuntimeError) as found:
        flow.stack([flow.from_torch(part) for part in parts])
    assert str(wanted.value) in str(found.value)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_empty_vector_fits_anywhere(world, place, dim):
    """Programs start from `empty(0)` and append to it; the empty one may be at any place."""

    def joined(lib, given):
        parts = [given, given * 2]
        parts.insert(place, lib.empty(0))
        return lib.cat(parts, dim)

    x = torch.arange(6.0).view(2, 3).requires_grad_()
    ours = flow.arange(6.0).view(2, 3).requires_grad_()
    wanted, found = joined(torch, x), joined(flow, ours)
    assert found.tolist() == wanted.tolist()
    wanted.square().sum().backward()
    found.square().sum().backward()
    assert ours.grad.tolist() == x.grad.tolist()
