"""Statistics of groups of channels, what they make of a tensor, and the gradient."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.nn import functional as F
from triton_harness import assert_matches_reference

import onefold as flow
from onefold.kernels import group_norm_ref as ref
from onefold.kernels.gpu.pointwise import channels_last as memory
from onefold.kernels.gpu.reduce import batch_norm_kernels, group_norm_kernels

MEMORY = {4: torch.channels_last, 5: torch.channels_last_3d}
SHAPES = [
    ((3, 6), 3), ((2, 6, 5), 2), ((1, 70, 2, 3), 10), ((2, 6, 2, 5, 3), 1), ((1, 130, 1, 1), 130)
]  # fmt: skip


def laid_out(x, last):
    return x.contiguous(memory_format=MEMORY[x.ndim]) if last and x.ndim in MEMORY else x


def layouts(x):
    """The tensor in row-major order, channels-last, and as neither."""
    yield x
    if x.ndim in MEMORY:
        yield x.contiguous(memory_format=MEMORY[x.ndim])
        yield x.transpose(-1, -2).contiguous().transpose(-1, -2)


def steps(x):
    """The strides that say where elements lie."""
    return [step for step, size in zip(x.stride(), x.shape, strict=True) if size > 1]


def check(x, size, weight_dtype=None):
    wide = torch.promote_types(x.dtype, torch.float32)
    mean, rstd = assert_matches_reference(ref.group_statistics, x, size, 1e-5, slack=8)
    shape = (1, x.shape[1], *(1,) * (x.ndim - 2))
    weight, bias = torch.randn(2, *shape).to(weight_dtype or wide)
    scaled = x, mean, rstd, weight, bias, size, 1e-5, None
    y = assert_matches_reference(ref.group_normalized, *scaled, slack=4)
    assert_matches_reference(ref.standardized, x, mean, rstd, size, 1e-5, wide, slack=4)
    dy = torch.randn_like(y)
    assert_matches_reference(ref.group_sums, dy, x, mean, rstd, None, size, slack=64)
    share = x.shape[1] / (x[0].numel() * size)
    for slope in (dy, dy.contiguous().to(wide)):  # as x lies, and row by row in another dtype
        args = x, slope, mean, rstd
        sums = assert_matches_reference(ref.group_sums, *args, weight, size, slack=64)[:2]
        dx = assert_matches_reference(ref.group_norm_slope, *args, weight, *sums, share)
        assert_matches_reference(ref.standard_slope, *args, *sums, share, slack=4)
        assert steps(dx) == steps(x) == steps(y)


@pytest.mark.parametrize(("shape", "size"), SHAPES, ids=str)
def test_layouts(shape, size):
    for x in layouts(torch.randn(shape)):
        check(x, size)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_dtypes(dtype):
    for x in layouts(torch.randn(2, 6, 4, 3).to(dtype)):
        check(x, 2)
        check(x, 3, dtype)


@pytest.fixture
def few_programs(monkeypatch):
    """As many programs as for a small chip, so that small tensors are shared out as large ones."""
    monkeypatch.setattr(batch_norm_kernels, "_PROGRAMS", 4)
    batch_norm_kernels.shared_out.cache_clear()
    yield
    batch_norm_kernels.shared_out.cache_clear()


@pytest.mark.parametrize("last", [False, True])
def test_several_programs_of_each_group(last):
    x = laid_out(torch.randn(2, 6, 97, 101), last)
    assert batch_norm_kernels.as_channels(x, last, by_sample=True)[1].splits > 1
    check(x, 3)


def test_several_channels_in_each_program(few_programs):
    x = torch.randn(7, 6, 2, 3)
    assert batch_norm_kernels.as_channels(x, False, by_sample=True)[1].block == 8
    assert batch_norm_kernels.shared_out(1, 1, 14, 18).block == 2
    check(x, 3)


@pytest.mark.parametrize("last", [False, True])
def test_a_large_mean_costs_no_accuracy(last):
    x = torch.randn(2, 4, 17, 5) + 3000
    x = laid_out(x, last)
    exact = x.double().reshape(2, 2, -1).var(2, correction=0)
    _, rstd = group_norm_kernels.group_statistics(x, 2, 0.0)
    # As of batch norm, where this is explained: here 170 squares are averaged.
    rtol = 4 * 2 * 2**-13 / 170**0.5
    torch.testing.assert_close(rstd[:, ::2, 0, 0].double() ** -2, exact, rtol=rtol, atol=0)


def test_no_elements():
    for shape in ((3, 4, 0), (0, 4, 3)):
        x = torch.zeros(shape)
        mean, rstd = assert_matches_reference(ref.group_statistics, x, 2, 0.1)
        assert_matches_reference(ref.group_sums, x, x, mean, rstd, None, 2)


def test_channels_last_is_read_and_written_as_it_lies(monkeypatch):
    def copied(x):
        raise AssertionError("a copy of what is dense already")

    monkeypatch.setattr(memory, "contiguous", copied)
    for shape in ((2, 6, 5, 4), (2, 6, 2, 3, 4)):
        for wanted in (torch.contiguous_format, MEMORY[len(shape)]):
            x = torch.randn(shape).contiguous(memory_format=wanted)
            mean, rstd = group_norm_kernels.group_statistics(x, 2, 1e-5)
            torch.testing.assert_close(
                mean[:, ::2].flatten(), x.reshape(2, 3, -1).mean(2).flatten()
            )
            sums = group_norm_kernels.group_sums(x, x, mean, rstd, None, 2)
            torch.testing.assert_close(sums[3].flatten(), x.transpose(0, 1).reshape(6, -1).sum(1))


# The ops, by which kernels are called.


def trained(lib, function, x, slope, weight, bias):
    """y, and the gradients of all that is given, in a library's own tensors."""
    tensors = [x, *(v for v in (weight, bias) if v is not None)]
    if lib is flow:
        made = {id(v): flow.from_torch(v.clone()).requires_grad_() for v in tensors}
        slope = flow.from_torch(slope)
    else:
        made = {id(v): v.clone().requires_grad_() for v in tensors}
    y = function(*[v if v is None else made[id(v)] for v in (x, weight, bias)])
    y.backward(slope)
    found = [y.detach(), *(v.grad for v in made.values())]
    return [v.to_torch() for v in found] if lib is flow else found


@settings(max_examples=12)
@given(
    st.integers(1, 4), st.sampled_from([(1, 1), (1, 6), (3, 2), (5, 1), (2, 10), (8, 4)]),
    st.lists(st.integers(1, 7), max_size=3), st.booleans(), st.booleans(),
    st.sampled_from(["weight and bias", "neither"]),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]), st.booleans(),
)  # fmt: skip
def test_training_equals_torch(batch, sizes, rest, last, slope_last, kind, dtype, groups_of_one):
    """Values, gradients, and where they lie, whatever lies how in memory."""
    groups, size = (sizes[0] * sizes[1], 1) if groups_of_one else sizes
    shape = (batch, groups * size, *rest)
    x = laid_out(torch.randn(shape), last).to(dtype)
    if size * x[0, 0].numel() == 1:
        return  # torch refuses it
    slope = laid_out(torch.randn(shape), slope_last).to(dtype)
    scale = torch.randn(2, shape[1]).to(dtype) if kind == "weight and bias" else (None, None)
    args = x, slope, *scale
    found = trained(flow, lambda x, w, b: flow.nn.functional.group_norm(x, groups, w, b), *args)
    exact = [v if v is None else v.double() for v in args]
    wanted = trained(torch, lambda x, w, b: F.group_norm(x, groups, w, b), *exact)
    # Each value is rounded once; those of float32 come of sums of a few hundred terms.
    rtol = {torch.float64: 1e-10, torch.float32: 2e-4, torch.bfloat16: 2**-7}[dtype]
    for mine, true in zip(found, wanted, strict=True):
        assert mine.dtype == dtype
        room = rtol * max(1.0, float(true.abs().max()))
        torch.testing.assert_close(mine.double(), true, rtol=0, atol=room)
    assert steps(found[0]) == steps(found[1]) == steps(x)


@pytest.mark.parametrize("scaled", [True, False])
def test_instance_norm_equals_torch(scaled):
    x = laid_out(torch.randn(2, 5, 4, 3, dtype=torch.float64), True)
    scale = torch.randn(2, 5, dtype=torch.float64) if scaled else (None, None)
    args = x, torch.randn_like(x), *scale

    def by(lib):
        norm = lib.nn.functional.instance_norm
        return trained(lib, lambda x, w, b: norm(x, None, None, w, b), *args)

    found, wanted = by(flow), by(torch)
    torch.testing.assert_close(found, wanted)
    assert found[0].stride() == found[1].stride() == x.stride()


def test_it_can_be_differentiated_again():
    x = torch.randn(2, 4, 3, 2, dtype=torch.float64)
    weight, bias = torch.randn(2, 4, dtype=torch.float64)

    def penalty(lib, x, weight, bias):
        y = lib.nn.functional.group_norm(x, 2, weight, bias)
        (dx,) = lib.autograd.grad((y * y * y).sum(), x, create_graph=True)
        (dx * dx).sum().backward()
        return x.grad, weight.grad, bias.grad

    mine = penalty(flow, *[flow.from_torch(v.clone()).requires_grad_() for v in (x, weight, bias)])
    true = penalty(torch, *[v.clone().requires_grad_() for v in (x, weight, bias)])
    torch.testing.assert_close([v.to_torch() for v in mine], list(true))
