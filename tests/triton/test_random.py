"""Random tensors and dropout have the bits of the reference, in every box."""

from functools import partial

import pytest
import torch
from device_checks import DEVICE
from hypothesis import given, settings, strategies as st
from philox_oracle import CALL, SEED, word_oracle
from triton_harness import poisoned_memory

from onefold.errors import OnefoldError
from onefold.kernels import random_ref, select
from onefold.kernels.philox import signed

# Every way to draw, as (function, options).
KINDS = {
    "bits": (random_ref.bits, {}),
    "uniform": (random_ref.uniform, {"low": -0.3, "high": 1.7}),
    "uniform_bf16": (random_ref.uniform, {"low": -3.0, "high": 5.0, "dtype": torch.bfloat16}),
    "uniform_f16": (random_ref.uniform, {"dtype": torch.float16}),
    "uniform_f64": (random_ref.uniform, {"low": 2.0, "high": 3.1, "dtype": torch.float64}),
    "normal": (random_ref.normal, {"mean": 0.1}),
    "normal_bf16": (random_ref.normal, {"mean": 0.25, "std": 0.02, "dtype": torch.bfloat16}),
    "normal_f64": (random_ref.normal, {"mean": -1.0, "std": 3.3, "dtype": torch.float64}),
    "exponential": (random_ref.exponential, {"scale": 0.7}),
    "exponential_f64": (random_ref.exponential, {"dtype": torch.float64}),
    "trunc_normal": (random_ref.trunc_normal, {"std": 0.02, "low": -0.04, "high": 0.03}),
    "trunc_normal_f64": (random_ref.trunc_normal, {"dtype": torch.float64}),
    "randint": (random_ref.randint, {"low": -7, "high": 1000}),
    "randint_bf16": (random_ref.randint, {"low": 0, "high": 2**40, "dtype": torch.bfloat16}),
    "randint_bool": (random_ref.randint, {"low": 0, "high": 2, "dtype": torch.bool}),
    "randint_all": (random_ref.randint, {"low": -(2**63), "high": 2**63}),
    "keep_mask": (random_ref.keep_mask, {"p": 0.3}),
    "dropout_mask": (random_ref.dropout_mask, {"p": 0.3, "dtype": torch.float16}),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def same(a, b):
    return (a.dtype, a.shape) == (b.dtype, b.shape) and torch.equal(
        a.contiguous().flatten().view(torch.uint8), b.contiguous().flatten().view(torch.uint8)
    )


def on_device(value):
    return value.to(DEVICE) if isinstance(value, torch.Tensor) else value


def assert_same(reference, *box, seed=SEED, call=CALL, **options):
    triton_kernel = select.triton_kernel(reference)
    options = {name: on_device(value) for name, value in options.items()}
    if reference is not random_ref.dropout:  # which draws where its tensor is
        options["device"] = DEVICE
    with poisoned_memory():
        found = triton_kernel(*box, seed=seed, call=call, **options)
    assert same(found, reference(*box, seed=seed, call=call, **options)), (reference, box)


@every_kind
def test_bits(kind):
    reference, options = KINDS[kind]
    for box in [
        ((1030, 3), (0, 0), (1030, 3)),
        ((9, 4, 3), (1, 1, 0), (7, 3, 3)),
        ((2**20, 2**40, 3), (2**19, 2**39 + 1, 0), (2, 3, 3)),
        ((0, 3), (0, 0), (0, 3)),
        ((3,), (0,), (3,)),
    ]:
        assert_same(reference, *box, **options)


@settings(max_examples=15)
@given(data=st.data(), kind=st.sampled_from(["bits", "normal", "uniform_f64"]))
def test_boxes(data, kind):
    shape = tuple(data.draw(st.lists(st.integers(1, 6), max_size=6)))
    offset = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    size = tuple(data.draw(st.integers(1, n - o)) for n, o in zip(shape, offset, strict=True))
    reference, options = KINDS[kind]
    assert_same(reference, shape, offset, size, **options)


def test_words_are_those_of_the_paper():
    found = select.triton_kernel(random_ref.bits)(
        (7,), (2,), (5,), seed=SEED, call=CALL, device=DEVICE
    )
    assert found.tolist() == [word_oracle(e) for e in range(2, 7)]


def test_seeds_and_calls_of_any_size():
    for seed, call in [(0, 0), (1, 16), (-5, 2**64 - 1), (2**63, 2**32), (5 - 2**64, 6 + 2**64)]:
        assert_same(random_ref.bits, (9,), (0,), (9,), seed=seed, call=call)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str
)
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_dropout(dtype, p):
    for shape, offset, size in [((5000,), (4,), (4500,)), ((6, 7, 5), (1, 0, 2), (4, 7, 3))]:
        x = torch.randn(size, dtype=dtype)
        for part in (x, x.transpose(0, -1).contiguous().transpose(0, -1), x[:0]):
            assert_same(random_ref.dropout, part, shape, offset, p=p)


@pytest.mark.parametrize("seed", [SEED, (1 << 64) - 1])
def test_numbers_that_are_read_from_memory(seed):
    key = torch.tensor([signed(seed), signed(CALL)], device=DEVICE)
    x = torch.randn(4, 7, 3, device=DEVICE)
    for dropout in (random_ref.dropout, select.triton_kernel(random_ref.dropout)):
        for shape in ((4, 7, 3), (5, 9, 4)):
            wanted = dropout(x, shape, (0, 0, 0), p=0.3, seed=seed, call=CALL)
            found = dropout(x, shape, (0, 0, 0), p=0.3, seed=key, call=0)
            assert torch.equal(found, wanted)


def test_randperm():
    for n, options in [(0, {}), (1, {}), (300, {}), (70, {"dtype": torch.int32})]:
        assert_same(random_ref.randperm, n, **options)


def test_bad_numbers():
    box = ((3,), (0,), (3,))
    for reference, options in [
        (random_ref.uniform, {"low": 2.0, "high": 1.0}),
        (random_ref.uniform, {"dtype": torch.int64}),
        (random_ref.normal, {"std": -1.0}),
        (random_ref.trunc_normal, {"std": 0.0}),
        (random_ref.randint, {"low": 3, "high": 3}),
        (random_ref.dropout_mask, {"p": 1.5}),
    ]:
        for function in (reference, select.triton_kernel(reference)):
            with pytest.raises(OnefoldError):
                function(*box, seed=0, call=0, **options)


def test_a_wrong_offset_is_noticed():
    def local(shape, offset, size, **draw):
        return random_ref.normal(size, (0,) * len(size), size, **draw)

    local.__module__, local.__name__ = random_ref.__name__, "normal"
    check = partial(assert_same, local, (4, 6))
    check((0, 0), (2, 6))
    with pytest.raises(AssertionError):
        check((2, 0), (2, 6))
