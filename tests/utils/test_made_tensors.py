"""testing.make_tensor: the ranges, dtypes and forms that torch's function gives."""

import pytest
import torch
from torch.testing import make_tensor as torch_make

import onefold as flow
from onefold.errors import OnefoldValueError
from onefold.testing import make_tensor

DTYPES = [
    torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (500,), (20, 30)])
def test_made_tensors(dtype, shape):
    mine = make_tensor(shape, dtype=dtype, device="cpu")
    theirs = torch_make(shape, dtype=dtype, device="cpu")
    assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
    parts = [mine.real, mine.imag] if dtype.is_complex else [mine]
    for part in parts:
        values = part.double().numpy()
        if dtype is torch.bool:
            low, high = 0, 1
        elif dtype is torch.uint8:
            low, high = 0, 9
        else:
            low, high = -9, 9
        assert values.min() >= low and values.max() <= high
        if values.size > 100:
            assert values.min() <= low + 1 and values.max() >= high - 1


def test_options_of_made_tensors():
    x = make_tensor(3, 4, dtype=torch.float32, device="cpu", noncontiguous=True, requires_grad=True)
    y = torch_make(3, 4, dtype=torch.float32, device="cpu", noncontiguous=True, requires_grad=True)
    assert x.stride() == y.stride() and x.requires_grad and x.is_leaf
    assert not x.is_contiguous()
    z = make_tensor(400, dtype=torch.int64, device="cpu", low=0, high=3, exclude_zero=True)
    assert sorted({*z.tolist()}) == [1, 2]
    flow.manual_seed(1)
    first = make_tensor(5, dtype=torch.float64, device="cpu")
    flow.manual_seed(1)
    assert flow.equal(first, make_tensor(5, dtype=torch.float64, device="cpu"))
    with pytest.raises(OnefoldValueError, match="low must be less than high"):
        make_tensor(3, dtype=torch.int64, device="cpu", low=3, high=3)


def test_functionalize_changes_nothing():
    def double(x):
        y = x.clone()
        y[0].mul_(2)
        return y

    x = flow.arange(4.0).reshape(2, 2)
    assert flow.equal(flow.func.functionalize(double)(x), double(x))
    with pytest.raises(OnefoldValueError, match="Valid options for functionalize"):
        flow.func.functionalize(double, remove="all")
