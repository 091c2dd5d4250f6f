"""The elementary functions against numpy's and torch's in float64, at the edges of their ranges."""

import numpy as np
import torch
from hypothesis import given, strategies as st

from onefold.kernels import random_transforms

EXTREME = [
    0,
    1,
    255,
    256,
    2**30,
    2**31 - 1,
    2**31,
    2**31 + 2**30,
    2**32 - 200,
    2**32 - 2,
    2**32 - 1,
]


def test_normal_of_extreme_words():
    """Measured against the u and t that float32 holds: what the polynomials add to them."""
    first, second = (a.ravel() for a in np.meshgrid(EXTREME, EXTREME))
    words = np.stack((first, second), axis=1).astype(np.uint32).ravel()
    z = random_transforms.box_muller(words, random_transforms.SINGLE).astype(np.float64)
    u = (first.astype(np.float32) * np.float32(2**-32) + np.float32(2**-33)).astype(np.float64)
    turn = (second >> 8) * 2.0**-24
    radius = np.sqrt(-2.0 * np.log(u))
    assert np.abs(z[0::2] - radius * np.cos(2 * np.pi * turn)).max() < 4e-6
    assert np.abs(z[1::2] - radius * np.sin(2 * np.pi * turn)).max() < 4e-6
    assert 6.7 < np.abs(z).max() < 6.8


def test_double_normal_is_accurate_to_its_type():
    x = np.random.default_rng(0).integers(2**64, size=1 << 16, dtype=np.uint64)
    x[:8] = [0, 0, 2**64 - 1, 1, 2**63, 2**62, 2**11, 2**64 - 1]
    z = random_transforms.box_muller(x, random_transforms.DOUBLE)
    u = (x[0::2] >> 11).astype(np.float64) * 2.0**-53 + 2.0**-54
    turn = (x[1::2] >> 11).astype(np.float64) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log(u))
    assert np.abs(z[0::2] - radius * np.cos(2 * np.pi * turn)).max() < 2e-14
    assert np.abs(z[1::2] - radius * np.sin(2 * np.pi * turn)).max() < 2e-14


def test_erfinv_is_torch_s():
    x = torch.linspace(-1, 1, 100_001, dtype=torch.float64).float().clamp(2**-24 - 1, 1 - 2**-24)
    expected = torch.erfinv(x.double())
    error = torch.from_numpy(random_transforms.erfinv(x.numpy())).double() - expected
    assert (error.abs() <= 1e-6 * expected.abs()).all()


WIDE = st.integers(0, 2**64 - 1) | st.sampled_from([0, 2**32 - 1, 2**32, 2**63, 2**64 - 1])


@given(words=st.lists(WIDE, min_size=1, max_size=4), factor=WIDE.map(lambda n: n + 1))
def test_high_product_is_that_of_whole_numbers(words, factor):
    expected = [word * factor >> 64 for word in words]
    words = np.array(words, np.uint64)
    assert random_transforms.high_product(words, factor).tolist() == expected
