"""quantize_fp8 and scaled_matmul: layouts, accuracy, errors."""

import pytest
import torch
from torch_oracle import SCALED_MM_BY_RECIPES

import onefold as flow
from onefold.engine.interpreter import grad_mode
from onefold.engine.names import names
from onefold.engine.placement import Placement
from onefold.engine.sbp import parse, short
from onefold.errors import OnefoldError, OnefoldRuntimeError
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

E4M3 = torch.float8_e4m3fn


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [("(S0)", "(B)", "(S0)"), ("(B)", "(S1)", "(S1)"), ("(S1)", "(S0)", "(P)")],
)
@pytest.mark.filterwarnings("error::onefold.FallbackWarning")
def test_blocks_stay_where_they_are(world, a, b, wanted):
    x, w = torch.randn(6, 16), torch.randn(16, 8)
    placement = Placement("cpu", [0, 1])
    left = names.quantize_fp8(make_global(x, placement, parse(a)), 4)
    right = names.quantize_fp8(make_global(w, placement, parse(b)), (4, 4))
    for found, given in ((left, a), (right, b)):
        assert short(found.values.meta.nd_sbp) == short(found.scales.meta.nd_sbp) == given
    y = names.scaled_matmul(*left, *right, block=4, out_dtype=torch.float32)
    assert short(y.meta.nd_sbp) == wanted
    exact = x @ w
    assert (value_of(y) - exact).norm() < 0.05 * exact.norm()


@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")
def test_a_split_that_cuts_a_block_is_gathered(world):
    x = torch.randn(6, 12)
    values, scales = names.quantize_fp8(make_global(x, Placement("cpu", [0, 1]), parse("(S1)")), 4)
    assert short(values.meta.nd_sbp) == "(B)"
    wanted = names.quantize_fp8(make_local(x), 4)
    assert torch.equal(value_of(scales), wanted.scales.shards[0])
    assert torch.equal(value_of(values).float(), wanted.values.shards[0].float())


def test_backward_says_that_there_is_no_gradient(world):
    x = make_local(torch.randn(4, 8)).requires_grad_()
    values, scale = names.quantize_fp8(x, 4)
    assert values.requires_grad
    w = names.quantize_fp8(make_local(torch.randn(8, 4)), (4, 4))
    y = names.scaled_matmul(values, scale, *w, block=4, out_dtype=torch.float32)
    with pytest.raises(OnefoldError, match="scaled_matmul has no gradient"):
        names.sum(y).backward()
    with pytest.raises(OnefoldError, match="quantize_fp8 has no gradient"):
        names.sum(scale).backward()
    with grad_mode(False):
        assert not names.quantize_fp8(x, 4).scales.requires_grad


def zeros(*shape, dtype=E4M3):
    return make_local(torch.zeros(shape).to(dtype))


def scales(*shape):
    return zeros(*shape, dtype=torch.float32)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: names.quantize_fp8(scales(4, 4), 0), "block must be"),
        (lambda: names.quantize_fp8(scales(4, 4), dtype=torch.int8), "dtype must be one of"),
        (lambda: names.quantize_fp8(scales(4)), "takes matrices"),
        (lambda: names.quantize_fp8(zeros(4, 4)), "takes matrices"),
        (
            lambda: names.scaled_matmul(zeros(4, 8), scales(4, 1), zeros(6, 5), scales(1, 5)),
            "the scales must be",
        ),
        (
            lambda: names.scaled_matmul(zeros(4, 8), scales(4, 2), zeros(8, 5), scales(1, 5)),
            "the scales must be",
        ),
        (
            lambda: names.scaled_matmul(scales(4, 8), scales(4, 1), zeros(8, 5), scales(1, 5)),
            "takes two float8 matrices",
        ),
        (
            lambda: names.scaled_matmul(
                zeros(4, 8), scales(4, 1), zeros(8, 5), scales(1, 5), out_dtype=torch.int32
            ),
            "out_dtype must be",
        ),
    ],
)
def test_errors(call, text):
    with pytest.raises(OnefoldError, match=text):
        call()


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("sbp", ["(S0)", "(B)"])
def test_scaled_mm_is_torchs(sbp, rows):
    a, b = (
        torch.randn(32, 160).to(torch.float8_e4m3fn),
        torch.randn(48, 160).to(torch.float8_e4m3fn),
    )
    mine, other = (
        (torch.rand(32, 1), torch.rand(1, 48)) if rows else (torch.rand(()), torch.rand(()))
    )
    bias = torch.randn(48).bfloat16()
    layout = {"placement": flow.placement("cpu", [0, 1]), "sbp": parse(sbp)}
    whole = {**layout, "sbp": flow.sbp.broadcast}
    x, s = flow.tensor(a, **layout), flow.tensor(mine, **(layout if rows else whole))
    w, t = flow.tensor(b.t().contiguous(), **whole), flow.tensor(other, **whole)
    wanted = (a.double() @ b.double().t()) * mine * other
    for dtype in (torch.float32, torch.bfloat16):
        found = flow._scaled_mm(x, w, s, t, out_dtype=dtype)
        assert found.dtype == dtype
        torch.testing.assert_close(value_of(found).double(), wanted, rtol=1e-2, atol=1e-2)
    found = flow._scaled_mm(x, w, s, t, flow.tensor(bias, **whole), out_dtype=torch.bfloat16)
    torch.testing.assert_close(value_of(found).double(), wanted + bias, rtol=1e-2, atol=1e-2)
    assert flow._scaled_mm(x, w, s, t).dtype == torch.float8_e4m3fn


@pytest.mark.skipif(not SCALED_MM_BY_RECIPES, reason="this torch has no such product on the CPU")
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("sbp", ["(S0)", "(B)"])
def test_scaled_mm_with_recipes_is_torchs(sbp, rows):
    TF, F = torch.nn.functional, flow.nn.functional
    a = torch.randn(32, 160).to(torch.float8_e4m3fn)
    b = torch.randn(48, 160).to(torch.float8_e4m3fn).t()
    shapes = ((32, 1), (1, 48)) if rows else ((), ())
    mine, other = (torch.rand(shape) for shape in shapes)
    how = TF.ScalingType.RowWise if rows else TF.ScalingType.TensorWise
    layout = {"placement": flow.placement("cpu", [0, 1]), "sbp": parse(sbp)}
    whole = {**layout, "sbp": flow.sbp.broadcast}
    x, s = flow.tensor(a, **layout), flow.tensor(mine, **(layout if rows else whole))
    w, t = flow.tensor(b.contiguous(), **whole), flow.tensor(other, **whole)
    wanted = TF.scaled_mm(a, b, mine, how, other, how)
    for found in (
        F.scaled_mm(x, w, s, F.ScalingType(how.value), [t], [how], F.SwizzleType.NO_SWIZZLE),
        TF.scaled_mm(x, w, s, how, t, how),
        flow._scaled_mm_v2(x, w, [s], [how.value], [], [t], [how.value], [], None, flow.bfloat16),
    ):
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(value_of(found).float(), wanted.float(), rtol=2e-2, atol=2e-2)


def test_recipes_that_are_not_there_name_the_way_out():
    F = flow.nn.functional
    x = flow.ones(16, 128).to(flow.float8_e4m3fn)
    one, many = flow.ones(()), flow.ones(3)
    by_one, blocks = F.ScalingType.TensorWise, F.ScalingType.BlockWise1x128
    for text, given in (
        ("scaled_matmul takes scales of blocks", (one, blocks, one, by_one)),
        ("scale_a needs one element", (many, by_one, one, by_one)),
        (r"scale_b needs the shape \(1, 16\)", (one, by_one, many, F.ScalingType.RowWise)),
        ("one scale for a matrix", ([one, one], by_one, one, by_one)),
        ("swizzle_a", (one, by_one, one, by_one, F.SwizzleType.SWIZZLE_32_4_4)),
    ):
        with pytest.raises(OnefoldRuntimeError, match=text):
            F.scaled_mm(x, x.t(), *given)
