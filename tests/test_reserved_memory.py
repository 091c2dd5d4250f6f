"""Memory on the driver without a GPU: it is zero, and takes no space until something is written."""

import resource

import pytest
import torch

from onefold.testing.gpu_driver import GpuDriver
from onefold.testing.gpu_driver.reserved_memory import LARGE, is_blank

COUNT = LARGE // 4  # float32 numbers that make large memory


@pytest.fixture(autouse=True)
def _driver():
    with GpuDriver("none"):
        yield


@pytest.mark.parametrize("count", [7, COUNT - 1, COUNT, COUNT + 1, 3 * COUNT])
@pytest.mark.parametrize("make", [torch.empty, torch.zeros])
def test_new_memory_is_zero_wherever_old_memory_was(make, count):
    torch.full((count,), 5.0)
    assert not make(count).any()


@pytest.mark.parametrize("make", [torch.empty, torch.zeros, torch.ones(()).new_zeros])
def test_only_large_memory_that_nothing_wrote_is_blank(make):
    x = make(2, COUNT)
    assert is_blank(x) and is_blank(x[1:])
    assert not is_blank(x[1, :8])
    x[1, -1] = 3.0
    assert not is_blank(x) and not is_blank(x[:1])
    assert not is_blank(make(4))


@pytest.mark.parametrize(
    "copy",
    [
        lambda x: x.clone(),
        lambda x: x.clone(memory_format=torch.contiguous_format),
        lambda x: x.to(torch.bfloat16, non_blocking=True),
        lambda x: x.to(torch.int64, copy=True, memory_format=torch.preserve_format),
        torch.zeros_like,
    ],
)
@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.T, lambda x: x[:, ::2]])
def test_copies_are_those_of_torch(copy, view):
    whole = torch.empty(2 * COUNT, 2)
    x = view(whole)
    with_torch = copy(view(torch.full((2 * COUNT, 2), 1.0)))
    found = copy(x)
    assert is_blank(found)
    assert (found.dtype, found.shape) == (with_torch.dtype, with_torch.shape)
    assert found.stride() == with_torch.stride()
    whole[3, 0] = 2.0
    assert not is_blank(whole)
    assert copy(x).double().sum() == (0.0 if copy is torch.zeros_like else x.double().sum())
    assert found.data_ptr() != whole.data_ptr() and not found.any()


@pytest.mark.parametrize("number", [0.0, -0.0, 1.0])
def test_a_number_that_is_repeated(number):
    x = torch.full((), number).expand(2, COUNT)
    assert is_blank(x) == (str(number) == "0.0")
    assert is_blank(x.clone()) == (str(number) == "0.0")
    assert (x.clone() == number).all()


def test_large_tensors_take_no_space():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kept = [torch.zeros_like(torch.empty(2**34)).clone() for _ in range(4)]
    assert kept[0].nbytes == 2**36  # 64 GiB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # KiB


def test_memory_is_given_back():
    def mappings():
        with open("/proc/self/maps") as file:
            return sum(1 for _ in file)

    kept = [torch.empty(COUNT) for _ in range(8)]
    before = mappings()
    for _ in range(200):
        kept[0] = torch.empty(COUNT).clone()
    assert mappings() < before + 100
