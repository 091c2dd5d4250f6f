"""Max unpooling: values go to their places, and the last where two have one place."""

import pytest
import torch
from device_checks import DEVICE
from torch.nn import functional
from triton_harness import assert_matches_reference

from onefold.errors import OnefoldError
from onefold.kernels import pool_ref, select

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
POOLS = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("shape", "planes"),
    [((2, 3, 7), 1), ((2, 70, 6, 8), 2), ((3, 6, 8), 2), ((2, 3, 4, 5, 6), 3)],
)
def test_values_return_to_their_places(dtype, shape, planes):
    x = torch.randn(shape)
    y, places = POOLS[planes](x, 2, return_indices=True)
    sizes = ((2,) * planes, (2,) * planes, (0,) * planes, shape[-planes:])
    given = [(y.to(dtype), places)]
    if len(shape) > 3:
        last = channels_last(y.to(dtype))
        given += [(last, channels_last(places)), (last, places)]
        given += [(y.to(dtype), channels_last(places))]
    for values, where in given:
        found = assert_matches_reference(pool_ref.max_unpool, values, where, planes, sizes)
        if not values.is_contiguous():
            assert found.is_contiguous(memory_format=FORMATS[len(shape)])


def channels_last(x):
    return x.contiguous(memory_format=FORMATS[x.ndim])


@pytest.mark.parametrize("planes", [1, 2, 3])
def test_the_last_of_equal_places(planes):
    shape = (2, 3, *(5, 4, 6)[:planes])
    generator = torch.Generator(DEVICE).manual_seed(0)
    places = torch.randint(0, 4, shape, generator=generator)
    sizes = ((3,) * planes, (2,) * planes, (1,) * planes, None)
    # On a GPU torch writes equal places in no fixed order, so the CPU says what is right.
    given = torch.randn(shape), places, planes, sizes
    assert_matches_reference(pool_ref.max_unpool, *given, on_cpu=True)


@pytest.mark.skipif(DEVICE == "cuda", reason="places are only checked on the CPU: see `checked`")
@pytest.mark.parametrize("size", [2, 3])
def test_a_place_outside_of_the_plane(size):
    x, places = torch.randn(1, 1, 2, 2), torch.full((1, 1, 2, 2), 99)
    unpool = select.triton_kernel(pool_ref.max_unpool)
    with pytest.raises(OnefoldError, match="99"):
        unpool(x, places, 2, ((size, size), (2, 2), (0, 0), None))
