"""onefold.testing itself: layouts by hand, strategies, samples, and assert_sbp_equivalent."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from onefold.engine.meta import Meta
from onefold.engine.names import names
from onefold.engine.placement import Placement
from onefold.engine.sbp import broadcast, partial_max, partial_min, partial_sum, split
from onefold.engine.tensor import from_shards
from onefold.testing import (
    Bo,
    I,
    Sample,
    T,
    assert_sbp_equivalent,
    meshes,
    nd_sbps,
    placements,
    shapes,
)
from onefold.testing.manual_layouts import close, gather, make_global, scatter
from onefold.testing.sample_checks import value_of

PAIR = Placement("cpu", [0, 1])


def normal(*shape):
    return torch.from_numpy(np.random.default_rng(1).standard_normal(shape))


# Layouts by hand.


@given(st.data())
def test_gather_undoes_scatter(data):
    placement = data.draw(placements())
    shape = data.draw(shapes(max_ndim=3))
    nd_sbp = data.draw(nd_sbps(shape, placement.ndim))
    value = normal(*shape)
    shards = scatter(value, placement, nd_sbp)
    meta = Meta.of(shape, value.dtype, placement, nd_sbp)
    assert [tuple(s.shape) for s in shards.values()] == [
        meta.local_shape(position) for position in range(placement.num_ranks)
    ]
    joined = gather(list(shards.values()), placement, nd_sbp)
    torch.testing.assert_close(joined, value, rtol=0, atol=1e-14)


@pytest.mark.parametrize("sbp", [partial_sum, partial_max, partial_min])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64])
def test_partial_shards_are_not_the_value(sbp, dtype):
    value = (normal(6, 4) * 10).to(dtype)
    shards = scatter(value, PAIR, (sbp,))
    assert all((shard != value).any() for shard in shards.values())
    torch.testing.assert_close(gather(list(shards.values()), PAIR, (sbp,)), value)


def test_shards_that_do_not_belong_together_are_noticed():
    x = normal(5, 4)
    assert gather([x, x + 1], PAIR, (broadcast,)) is None
    assert gather([x[:2], x[2:]], PAIR, (split(0),)) is None  # 2 and 3 instead of 3 and 2
    assert gather([x[:3], x[3:, :3]], PAIR, (split(0),)) is None
    with pytest.raises(AssertionError, match="do not belong together"):
        value_of(from_shards((x, x + 1), Meta.of(x.shape, x.dtype, PAIR, (broadcast,))))


def test_float8_must_be_equal():
    x = torch.tensor([1.0, 2.0, float("nan")])
    other = torch.tensor([1.0, 2.25, float("nan")])
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2fnuz):
        assert close(x.to(dtype), x.to(dtype))
        assert not close(x.to(dtype), (2 * x).to(dtype))
    assert not close(x.to(torch.float8_e4m3fn), other.to(torch.float8_e4m3fn), tol=1e-3)


def test_replicas_hold_the_same_addend():
    placement = Placement("cpu", [[0, 1], [2, 3]])
    nd_sbp = (broadcast, partial_sum)
    shards = list(scatter(normal(5, 4), placement, nd_sbp).values())
    assert torch.equal(shards[0], shards[2])
    assert torch.equal(shards[1], shards[3])
    # Each pair adds up to the value, but ranks 0 and 2 differ.
    mixed = [shards[0], shards[1], shards[1], shards[0]]
    assert gather(mixed, placement, nd_sbp) is None


# Strategies.


def all_of(strategy):
    """The values that hypothesis draws."""
    drawn = set()

    @settings(max_examples=500)  # rare values are among them
    @given(strategy)
    def collect(value):
        drawn.add(value)

    collect()
    return drawn


@given(placements(max_ranks=6, max_ndim=2))
def test_placements_keep_their_bounds(placement):
    assert placement.ndim in (1, 2)
    assert set(placement.flat_ranks) <= set(range(6))


def test_every_mesh_is_drawn():
    drawn = all_of(meshes(4, 2))
    ones = {(n,) for n in range(1, 5)}
    assert drawn == ones | {(a, b) for a in range(1, 5) for b in range(1, 5) if a * b <= 4}


def test_uneven_empty_and_plain_shapes_are_drawn():
    drawn = all_of(shapes(1, 1))
    assert drawn == {(size,) for size in range(8)}


def test_partial_layouts_can_be_left_out():
    drawn = all_of(nd_sbps((4, 4), 1, partial=False))
    assert drawn == {(split(0),), (split(1),), (broadcast,)}


# Samples.


def test_a_sample_draws_the_same_values_each_time():
    sample = Sample("where", (Bo(4), T(4, low=2, high=3), [I(4, high=3, low=1)]))
    first, second = sample.tensors(), sample.tensors()
    assert all(map(torch.equal, first, second))
    condition, uniform, integers = first
    assert condition.dtype == torch.bool
    assert ((uniform >= 2) & (uniform < 3)).all()
    assert ((integers >= 1) & (integers < 3)).all()


def test_a_sample_fills_nested_arguments():
    sample = Sample("cat", ([T(2, 3), T(1, 3)],), {"dim": 0})
    x, y = sample.tensors()
    assert torch.equal(sample.run_torch([x, y])[0], torch.cat([x, y]))


def test_a_sample_without_reference_says_so():
    with pytest.raises(ValueError, match="give the sample torch="):
        Sample("no_such_op", (T(2),)).reference()
    with pytest.raises(ValueError, match="give the sample call="):
        Sample("no_such_op", (T(2),)).function()


# assert_sbp_equivalent.


def test_layouts_make_no_difference():
    assert_sbp_equivalent(lambda x, w: names.tanh(x @ w), normal(5, 4), normal(4, 3))
    assert_sbp_equivalent(lambda x: {"total": names.sum(x), "twice": [x + x]}, normal(5, 4))
    assert_sbp_equivalent(names.relu, normal(7).numpy(), placements=[PAIR])


def by_layout(right, wrong):
    """A function that does something else where its input is a partial sum."""

    def call(x):
        partial = x.is_global and partial_sum in x.sbp
        return (wrong if partial else right)(x)

    return call


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (by_layout(names.tanh, lambda x: names.tanh(x) * 1.01), "output 0 differs by up to"),
        (by_layout(names.tanh, lambda x: names.tanh(x).detach()), "gradient of input 0 is missing"),
        (by_layout(names.tanh, names.sum), "output 0 has shape"),
        (by_layout(names.tanh, lambda x: (x, x)), "2 outputs instead of 1"),
        (by_layout(names.tanh, lambda x: names.cast(x, torch.float32)), "output 0 has dtype"),
    ],
)
def test_a_difference_is_named(fn, message):
    with pytest.raises(AssertionError, match=message) as caught:
        assert_sbp_equivalent(fn, normal(5, 4))
    assert "(P)" in str(caught.value)
    assert "placement" in str(caught.value)


def test_a_wrong_gradient_is_noticed():
    def call(x):
        return names.tanh(x) + (x - x.detach() if x.is_global else 0 * x)

    with pytest.raises(AssertionError, match="gradient of input 0 differs"):
        assert_sbp_equivalent(call, normal(5, 4))


def test_wrong_uses_are_errors():
    with pytest.raises(ValueError, match="returned no tensor"):
        assert_sbp_equivalent(lambda x: 1, normal(3))
    with pytest.raises(ValueError, match="pass local tensors"):
        assert_sbp_equivalent(lambda x: x, make_global(normal(3), PAIR, (broadcast,)))
