"""Sobol sequences: the points of torch."""

import numpy as np
import pytest
import torch

import onefold as flow


@pytest.mark.parametrize("options", [{}, {"scramble": True, "seed": 3}])
def test_the_points_are_those_of_torch(world, options):
    found, wanted = [], []
    for lib, made in ((torch, wanted), (flow, found)):
        points = lib.quasirandom.SobolEngine(5, **options)
        made += [points.draw(3), points.draw(), points.fast_forward(2).draw(2, dtype=lib.float64)]
        made += [points.reset().draw_base2(2), points.draw(2, out=lib.empty(2, 5))]
        assert points.num_generated == 6
        made.append(repr(points))
    assert found.pop() == wanted.pop()
    for mine, theirs in zip(found, wanted, strict=True):
        assert isinstance(mine, flow.Tensor) and mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


def test_the_default_generator_scrambles(world):
    def points():
        return flow.quasirandom.SobolEngine(2, scramble=True).draw(4).numpy()

    flow.manual_seed(1)
    first, second = points(), points()
    flow.manual_seed(1)
    np.testing.assert_array_equal(points(), first)
    assert not np.array_equal(first, second)


def test_wrong_numbers_say_what_is_allowed(world):
    with pytest.raises(ValueError, match="dimension must be between 1 and 21201, but got 0"):
        flow.quasirandom.SobolEngine(0)
    points = flow.quasirandom.SobolEngine(2)
    points.draw(3)
    with pytest.raises(ValueError, match=r"3 points and 2\*\*2 more are 7"):
        points.draw_base2(2)
