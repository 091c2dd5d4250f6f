"""The radix sort, over several blocks and passes: stable, and the same as torch's."""

import pytest
import torch
from device_checks import DEVICE
from hypothesis import given, settings, strategies as st
from triton_harness import poisoned_memory

from onefold.kernels.gpu.sort.radix_sort import radix_sort

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def bits_of(x):
    """The tensor's bits, in which -0 is not 0."""
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return x.view(whole[x.itemsize])


def assert_sorted(x, descending=False, **given):
    with poisoned_memory():
        values, indices = radix_sort(x, descending, block=16, **given)
    wanted = torch.sort(x.cpu(), descending=descending, stable=True)
    assert torch.equal(indices.cpu(), wanted.indices)
    assert torch.equal(bits_of(values.cpu()), bits_of(wanted.values))


def drawn(dtype, shape, seed):
    """Numbers of all sizes and signs, of which many are equal."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    wide = torch.randint(-(2**63), 2**63 - 1, shape, generator=generator)
    wide = wide >> torch.randint(0, 64, shape, generator=generator)
    if not dtype.is_floating_point:
        return wide.to(dtype)
    x = wide.double() * 2.0**-30
    special = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-42])
    chosen = torch.randint(0, 40, shape, generator=generator)
    for number, value in enumerate(special.tolist()):
        x[chosen == number] = value
    return x.to(dtype)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@settings(max_examples=3)
@given(
    rows=st.integers(1, 2), n=st.integers(1, 30), descending=st.booleans(), seed=st.integers(0, 99)
)
def test_every_number_of_a_type(dtype, rows, n, descending, seed):
    assert_sorted(drawn(dtype, (rows, n), seed), descending)


@settings(max_examples=8)
@given(
    n=st.integers(1, 60), most=st.sampled_from([0, 1, 15, 16, 70000, 2**31 - 1, 2**31, 2**40]),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_integers_up_to_a_number(n, most, seed):
    generator = torch.Generator(DEVICE).manual_seed(seed)
    x = torch.randint(0, most + 1, (n,), generator=generator)
    x[0] = most
    assert_sorted(x, most=most)


def test_only_the_bits_that_may_differ_are_sorted():
    """The digits above that of `most` are not looked at."""
    values, _ = radix_sort(torch.tensor([256, 3, 1]), most=15)
    assert values.tolist() == [256, 1, 3]


def test_equal_elements_keep_their_order():
    x = torch.tensor([1.0, 0.0, -0.0, 1.0, 0.0] * 9)
    assert_sorted(x)
    assert_sorted(x, descending=True)


def test_many_blocks():
    assert_sorted(torch.randint(0, 2**31 - 1, (500,)) % 97, most=96)
