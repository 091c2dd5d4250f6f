"""How tensors travel, against numpy; without any communication."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from onefold.distributed.wire_format import from_bytes, size_in_bytes, to_bytes, to_reducible
from onefold.errors import OnefoldTypeError, OnefoldValueError

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
EIGHTS = [torch.float8_e4m3fn, torch.float8_e5m2]
INTS = [torch.int8, torch.int16, torch.int32, torch.int64]
UINTS = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
ALL = [*FLOATS, *EIGHTS, *INTS, *UINTS, *COMPLEX, torch.bool]

numbers = st.floats(width=16) | st.sampled_from([float("nan"), -float("nan"), -0.0, 0.0])


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_bytes_there_and_back(dtype, shape):
    t = torch.randint(0, 2, shape).to(dtype)
    data = to_bytes(t)
    assert data.dtype is torch.uint8
    assert data.shape == (size_in_bytes(shape, dtype),)
    back = from_bytes(data, shape, dtype)
    assert back.dtype is dtype
    assert back.shape == shape
    assert torch.equal(back.reshape(-1).view(torch.uint8), t.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize(
    "t",
    [
        torch.arange(6.0).view(2, 3).t(),
        torch.arange(12.0)[::3],
        torch.tensor([1 + 2j, 3 - 1j]).conj(),
        torch.tensor([1 + 2j, 3 - 1j]).conj().imag,
        torch.ones(1).expand(4),
        torch.ones(2, requires_grad=True),
    ],
    ids=["transposed", "strided", "conjugate", "negative", "expanded", "requires_grad"],
)
def test_bytes_of_views(t):
    back = from_bytes(to_bytes(t), t.shape, t.dtype)
    assert not back.requires_grad
    np.testing.assert_array_equal(back.numpy(), t.detach().resolve_conj().resolve_neg().numpy())


@given(
    pairs=st.lists(st.tuples(numbers, numbers), max_size=8),
    dtype=st.sampled_from(FLOATS),
    op=st.sampled_from(["max", "min"]),
)
def test_order_of_floats(pairs, dtype, op):
    a, b = (torch.tensor([p[i] for p in pairs], dtype=dtype) for i in (0, 1))
    x, wire_op, restore = to_reducible(a, op, inplace=False)
    y, _, _ = to_reducible(b, op, inplace=False)
    assert wire_op == op
    assert not x.dtype.is_floating_point
    on_wire, on_values = {
        "max": (torch.maximum, np.maximum),
        "min": (torch.minimum, np.minimum),
    }[op]
    result = restore(on_wire(x, y))
    assert result.dtype is dtype
    np.testing.assert_array_equal(
        result.double().numpy(), on_values(a.double().numpy(), b.double().numpy())
    )


@given(
    a=st.integers(0, 2**64 - 1),
    b=st.integers(0, 2**64 - 1),
    dtype=st.sampled_from([*INTS, *UINTS]),
    op=st.sampled_from(["sum", "max", "min"]),
)
def test_integers_wrap_and_order_as_in_numpy(a, b, dtype, op):
    name = str(dtype).removeprefix("torch.")
    both = [np.array([v], dtype=np.uint64).astype(name) for v in (a, b)]
    x, y = (to_reducible(torch.from_numpy(v), op, inplace=False)[0] for v in both)
    restore = to_reducible(torch.from_numpy(both[0]), op, inplace=False)[2]
    on_wire = {"sum": torch.add, "max": torch.maximum, "min": torch.minimum}[op]
    on_values = {"sum": np.add, "max": np.maximum, "min": np.minimum}[op]
    result = restore(on_wire(x, y))
    assert result.dtype is dtype
    np.testing.assert_array_equal(result.numpy(), on_values(*both))


@pytest.mark.parametrize("dtype", ALL)
def test_memory_is_shared_only_in_place(dtype):
    t = torch.ones(3).to(dtype)
    data, _, _ = to_reducible(t, "sum", inplace=False)
    assert data.data_ptr() != t.data_ptr()


def test_in_place_uses_the_tensor():
    t = torch.ones(3)
    assert to_reducible(t, "sum", inplace=True)[0].data_ptr() == t.data_ptr()


def test_max_of_complex_is_an_error():
    with pytest.raises(OnefoldTypeError, match=r"complex.*no order.*Only 'sum'"):
        to_reducible(torch.ones(1, dtype=torch.complex64), "max", inplace=False)


def test_unknown_reduction():
    with pytest.raises(OnefoldValueError, match=r"sum.*max.*min.*not 'prod'"):
        to_reducible(torch.ones(1), "prod", inplace=False)


def test_an_expanded_single_element_has_bytes():
    t = torch.tensor([[7], [8]]).t()[:, :1].expand(1, 1)[0].expand(1)
    single = torch.zeros((), dtype=torch.int64).expand(1)
    for value in (t, single):
        assert from_bytes(to_bytes(value), value.shape, value.dtype).equal(value)
