"""Products of matrices, vectors and batches; what follows them; sums over rows."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from triton_harness import assert_matches_reference, error, poisoned_memory

from onefold.kernels import matmul_ref, select
from onefold.kernels.gpu.matmul import (
    gemm,
    gemm_config,
    gemm_operands,
    gemm_tma,
    gemv,
    matmul_kernels,
)
from onefold.kernels.gpu.matmul.gemm_config import Tile
from onefold.kernels.gpu.matmul.tile_cost import (
    Product,
    count,
    cycles,
    efficiency,
    longest,
    part_counts,
)
from onefold.kernels.gpu.pointwise.prologue import function_of, gelu_and_sum

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
# Of float64 the reference is the exact value, so that every other order of a sum is off.
SLACK = {torch.float64: 32.0, torch.float32: 4.0}


def assert_same(reference, *args):
    dtype = next(x.dtype for x in args if isinstance(x, torch.Tensor))
    return assert_matches_reference(reference, *args, slack=SLACK.get(dtype, 2.0))


def make(*shape, dtype=torch.float32):
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=dtype)
    return torch.randint(-9, 9, shape, dtype=dtype)


def by_columns(x):
    """The same values with the last two dims swapped in memory."""
    return x.mT.contiguous().mT


def apart(x):
    """The same values with no dense dim."""
    wide = x.new_zeros(*x.shape[:-1], 2 * x.shape[-1])[..., ::2]
    return wide.copy_(x)


def within(x):
    """The same values as a part of a larger tensor, unaligned."""
    large = x.new_zeros(*x.shape[:-2], x.shape[-2] + 2, x.shape[-1] + 3)
    return large[..., 1:-1, 1:-2].copy_(x)


MATRICES = [(5, 7, 3), (33, 40, 70), (16, 16, 16), (1, 40, 9), (17, 1, 5), (3, 4, 0), (0, 3, 4)]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", MATRICES, ids=str)
def test_matrices(shape, dtype):
    m, n, k = shape
    a, b, x = make(m, k, dtype=dtype), make(k, n, dtype=dtype), make(m, n, dtype=dtype)
    assert_same(matmul_ref.mm, a, b)
    assert_same(matmul_ref.addmm_nt, x, a, b.t().contiguous())
    if shape in (MATRICES[0], MATRICES[-1]):
        assert_same(matmul_ref.mm_nt, a, b.t())
        assert_same(matmul_ref.mm_tn, a.t(), b)
        assert_same(matmul_ref.addmm, by_columns(x), a, b)
        assert_same(matmul_ref.addmm_tn, x, a.t().contiguous(), b)


@pytest.mark.parametrize("change", [by_columns, apart, within], ids=lambda f: f.__name__)
def test_layouts(change):
    a, b, x = make(19, 21), make(21, 35), make(19, 35)
    assert_same(matmul_ref.mm, change(a), b)
    assert_same(matmul_ref.mm, a, change(b))
    assert_same(matmul_ref.mm, change(a), change(b))
    assert_same(matmul_ref.addmm, change(x), a, b)
    assert_same(matmul_ref.mm, a[:1].expand(19, 21), b[:, :1].expand(21, 35))
    assert_same(matmul_ref.mv, change(a), make(42)[::2])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.int8], ids=str)
def test_whole_numbers(dtype):
    a, b = (make(*shape, dtype=torch.int64).to(dtype) for shape in ((19, 35), (35, 18)))
    assert_same(matmul_ref.mm, a, b)
    assert_same(matmul_ref.mv, a, b[:, 0])


def test_float8_is_rounded_once():
    a, b = (torch.randn(5, 9).to(torch.float8_e4m3fn) for _ in "ab")
    mine, true = matmul_kernels.matmul_nt(a, b), torch.matmul(a, b.t())
    assert torch.equal(mine.float(), true.float())


@pytest.mark.parametrize("shape", [(3,), (3, 2), (4, 3, 2)], ids=str)
@pytest.mark.parametrize("dtypes", [(torch.float32, torch.bfloat16), (torch.int32, torch.int8)])
def test_operands_of_two_dtypes_are_refused(shape, dtypes):
    a, b = torch.ones(2, 3, dtype=dtypes[0]), torch.ones(shape, dtype=dtypes[1])
    with pytest.raises(RuntimeError, match=r"dtype|scalar type"):
        matmul_kernels.matmul(a, b)


def test_what_torch_does():
    a, b = torch.randn(3, 4, dtype=torch.complex64), torch.randn(4, 5, dtype=torch.complex64)
    for reference, args in [
        (matmul_ref.mm, (a, b)),
        (matmul_ref.matmul_nt, (a, b.T)),
        (matmul_ref.dot, (a[0], b[:, 0])),
        (matmul_ref.addmm, (torch.zeros(3, 5, dtype=a.dtype), a, b)),
        (matmul_ref.contraction, (a, b, "ij,jk->ik")),
    ]:
        assert torch.equal(select.triton_kernel(reference)(*args), reference(*args))


VECTORS = [
    ((7,), (7,)), ((0,), (0,)), ((5, 7), (7,)), ((2, 5, 7), (7,)), ((7,), (7, 3)),
    ((7,), (2, 7, 3)), ((3, 2), (2,)), ((0, 4), (4,)), ((4, 0), (0,)),
]  # fmt: skip
BATCHES = [
    ((2, 3, 5), (2, 5, 4)), ((3, 5), (2, 5, 4)), ((2, 3, 5), (5, 4)), ((2, 1, 3, 5), (4, 5, 4)),
    ((2, 1, 2, 3, 5), (2, 1, 5, 2)), ((1, 3, 5), (1, 5, 2)), ((0, 3, 5), (5, 2)),
    ((2, 3, 0), (0, 5)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(("a", "b"), VECTORS + BATCHES, ids=str)
def test_broadcast(a, b, dtype):
    a, b = make(*a, dtype=dtype), make(*b, dtype=dtype)
    assert_same(matmul_ref.matmul, a, b)
    if b.ndim > 1:
        assert_same(matmul_ref.matmul_nt, a, b.mT.contiguous())
    if a.ndim > 1 and b.ndim == 3:
        assert_same(matmul_ref.matmul_tn, a.mT.contiguous(), b)
        assert_same(matmul_ref.matmul, within(a), by_columns(b))
    if a.ndim == b.ndim == 3 and a.shape[0] == b.shape[0]:
        assert_same(matmul_ref.bmm, a, b)
    if a.ndim == b.ndim == 1:
        assert_same(matmul_ref.dot, a, b)


def test_heads():
    # Batch dims in another order than memory, as attention makes them.
    q, k = make(2, 6, 3, 5), make(2, 7, 3, 5)
    assert_same(matmul_ref.matmul_nt, q.transpose(1, 2), k.transpose(1, 2))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_linear(dtype):
    w, b = make(6, 4, dtype=dtype), make(6, dtype=dtype)
    for shape in ((5, 4), (2, 3, 4), (4,), (0, 4)):
        x = make(*shape, dtype=dtype)
        assert_same(matmul_ref.linear, x, w, b)
        assert_same(matmul_ref.linear, x, w)
        assert_same(matmul_ref.linear, x, w[0])
        if x.ndim > 1:
            assert_same(matmul_ref.linear, x, w, b[:1])
            assert_same(matmul_ref.rows_tn, x, make(*shape[:-1], 3, dtype=dtype))
    assert_same(matmul_ref.outer, w[0], b)
    assert_same(matmul_ref.linear, make(5, 0, dtype=dtype), make(6, 0, dtype=dtype), b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_parts_of_a_sum(dtype):
    a, b = make(3000, 9, dtype=dtype), make(3000, 5, dtype=dtype)
    tile = gemm_config.tile_of(gemm_config.kind_of(dtype), 9, 5, 3000)
    parts, span = gemm_config.parts_of(gemm_config.kind_of(dtype), 9, 5, 3000, 1, tile)
    assert parts > 1
    assert (parts - 1) * span < 3000 <= parts * span
    assert_same(matmul_ref.mm_tn, a, b)
    assert_same(matmul_ref.rows_tn, a.view(30, 100, 9), b.view(30, 100, 5))
    assert_same(matmul_ref.addmm_tn, make(9, 5, dtype=dtype), a, b)
    assert_same(matmul_ref.matmul_tn, a.view(2, 1500, 9), b.view(2, 1500, 5))
    assert gemv._form(1, 30000, False)[2] > 1
    # Of one sign: beside a sum that is small because its terms cancel, every rounding looks large.
    terms = make(2, 30000, dtype=dtype).abs()
    assert_same(matmul_ref.dot, terms[0], terms[1])


@pytest.mark.parametrize(("parts", "k"), [(3, 3073), (5, 5197), (7, 7501)])
@pytest.mark.parametrize("layout", ["nn", "tn", "nt"])
def test_parts_of_several_lengths(layout, parts, k):
    """The rule's number of parts, which is no power of two, of an odd sum."""
    a, b = make(19, k, dtype=torch.bfloat16), make(k, 5, dtype=torch.bfloat16)
    a = by_columns(a) if layout[0] == "t" else a
    b = by_columns(b) if layout[1] == "t" else b
    tile = gemm_config.tile_of("half", 19, 5, k)
    found, span = gemm_config.parts_of("half", 19, 5, k, 1, tile)
    assert found == parts and k % tile.k and (k - 1) // span == parts - 1
    with poisoned_memory():
        y = gemm.product(a, b, dtype=torch.float32)
        total = torch.ones(19, 5)
        gemm.product(a, b, gemm.Epilogue(x=total), out=total)
    exact = a.double() @ b.double()
    assert error(y, exact) < 1e-5
    assert error(total, exact + 1) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("parts", [3, 5, 7])
def test_parts_are_added_from_the_first_to_the_last(parts, dtype):
    k, tile = 16 * 20 + 5, Tile(16, 16, 16, 4, 2)
    a, b = make(2, 20, k, dtype=dtype), make(2, k, 18, dtype=dtype)
    kind, span = gemm_config.kind_of(dtype), longest(k, 16, parts)
    assert (parts - 1) * span < k < parts * span

    def made(a, b, cut):
        y = torch.empty(2, 20, 18, dtype=dtype)
        gemm._make(gemm_operands.pair(a, b), y, gemm.NOTHING, kind, tile, cut)
        return y

    with poisoned_memory():
        y = made(a, b, (parts, span))
        pairs = zip(a.split(span, 2), b.split(span, 1), strict=True)
        some = [made(left, right, (1, span)) for left, right in pairs]
    assert len(some) == parts
    assert torch.equal(y, sum(some[1:], some[0]))
    if dtype.is_floating_point:
        assert error(y, a.double() @ b.double()) < 64 * torch.finfo(dtype).eps
    else:
        assert torch.equal(y.cpu(), a.cpu() @ b.cpu())  # torch has none of integers on a GPU


def test_parts_have_the_tile_of_the_product_alone(monkeypatch):
    """Their epilogue is that of the sum, so that it needs no smaller tile."""
    made = []
    monkeypatch.setattr(gemm, "_make", lambda p, y, end, kind, tile, cut: made.append((tile, cut)))
    a, b = (torch.empty(8192, size, dtype=torch.bfloat16) for size in (3072, 768))
    total = torch.empty(3072, 768)
    gemm.product(a.t(), b, dtype=torch.float32)
    gemm.product(a.t(), b, gemm.Epilogue(x=total), out=total)
    assert made[0] == made[1]
    assert made[0][1][0] > 1
    assert made[0][0] != gemm_config.tile_of("half", 3072, 768, 8192, 1, False)


@settings(max_examples=12)
@given(m=st.integers(1, 70), n=st.integers(1, 70), k=st.integers(0, 300))
def test_rule(m, n, k):
    for kind in gemm_config._TILES:
        tile = gemm_config.tile_of(kind, m, n, k)
        parts, span = gemm_config.parts_of(kind, m, n, k, 1, tile)
        assert span * parts >= k
        assert span % tile.k == 0 or parts == 1
        assert (parts - 1) * span < max(k, 1)


@settings(max_examples=6)
@given(m=st.integers(1, 40), n=st.integers(1, 40), k=st.integers(0, 40), a=st.booleans(),
       b=st.booleans())  # fmt: skip
def test_any_shape(m, n, k, a, b):
    u = make(k, m).t() if a else make(m, k)
    v = make(n, k).t() if b else make(k, n)
    assert_same(matmul_ref.mm, u, v)


@pytest.mark.parametrize("equation", [
    "ij,jk->ik", "ij,jk->ki", "bij,bjk->bik", "bij,bkj->kbi", "i,j->ji", "i,i->", "ab,ab->ab",
    "abc,cbd->da", "abc,bca->", "abcd,cd->ab",
])  # fmt: skip
def test_contraction(equation):
    sizes = dict(zip("ijkabcdb", (5, 3, 4, 2, 3, 4, 2, 3), strict=True))
    a, b = (make(*(sizes[x] for x in t)) for t in equation.split("->")[0].split(","))
    assert_same(matmul_ref.contraction, a, b, equation)


# On 132 multiprocessors: the tile and the parts of the rule, and those of a rule before it, which
# took the largest tile of which there are 120, or only powers of two of parts.
WAVES = {
    ("half", 8192, 8192, 8192): ((128, 256), 1, (128, 256), 1),
    ("half", 1536, 3072, 4096): ((128, 128), 1, (128, 256), 1),
    ("half", 8192, 768, 3072): ((128, 128), 1, (128, 256), 1),
    ("half", 4096, 768, 768): ((128, 256), 1, (128, 128), 1),
    ("half", 768, 768, 32768): ((128, 256), 7, (128, 128), 16),
    ("half", 768, 768, 8192): ((128, 128), 3, (128, 256), 4),
    ("half", 768, 768, 65536): ((128, 256), 7, (128, 256), 32),
    ("half", 768, 3072, 16384): ((128, 256), 5, (128, 256), 8),
    ("half", 3072, 768, 65536): ((128, 256), 7, (128, 256), 16),
    ("half", 2304, 768, 16384): ((128, 256), 2, (64, 128), 1),
    ("half", 2304, 768, 65536): ((128, 256), 7, (128, 256), 2),
    ("half", 1024, 768, 50304): ((128, 256), 11, (128, 256), 16),
    ("half", 16, 4096, 4096): ((16, 64), 2, (16, 16), 1),
    ("half", 64, 64, 65536): ((64, 64), 128, (64, 64), 128),
    ("half", 4096, 32000, 2048): ((128, 256), 1, (128, 256), 1),
    ("tf32", 1536, 3072, 4096): ((128, 128), 1, (128, 128), 1),
    ("tf32", 768, 3072, 16384): ((128, 128), 6, (128, 128), 1),
}


@pytest.mark.parametrize("product", WAVES, ids=str)
def test_tiles_fill_waves(product):
    kind, *sizes = product
    wanted, wanted_parts, before, parts_before = WAVES[product]
    tile = gemm_config.by_rule(kind, *sizes, among=132)
    parts, _ = gemm_config.parts_of(kind, *sizes, 1, tile, 132)
    assert (tile[:2], parts) == (wanted, wanted_parts)
    p = Product(*sizes, 1, 132)
    earlier = (*before, 64 if kind == "half" else 32)
    # Fewer parts are taken where that costs 1% at most.
    assert efficiency(p, tile, parts) >= 0.97 * efficiency(p, earlier, parts_before)
    assert cycles(p, kind, tile, parts) <= cycles(p, kind, earlier, parts_before)


@settings(max_examples=60)
@given(k=st.integers(0, 20000), step=st.sampled_from([16, 64, 100]), most=st.integers(1, 90))
def test_every_length_of_parts_is_tried_once(k, step, most):
    """Beside cuts of a list of steps into any number of parts."""
    steps = [min(step, k - start) for start in range(0, k, step)]
    least = {}  # by the length of the longest part
    for parts in range(1, most + 1):
        length = -(-len(steps) // parts)
        cut = [sum(steps[i : i + length]) for i in range(0, len(steps), max(length, 1))]
        if parts > 1 and parts == len(cut):
            assert longest(k, step, parts) == cut[0]
        least.setdefault(length, parts)
    assert list(part_counts(k, step, most)) == sorted(least.values())


@settings(max_examples=30)
@given(m=st.integers(1, 4000), n=st.integers(1, 4000), k=st.integers(1, 70000))
def test_no_other_number_of_parts_is_much_faster(m, n, k):
    tile = gemm_config.by_rule("half", m, n, k, among=132)
    p = Product(m, n, k, 1, 132)
    parts, _ = gemm_config.parts_of("half", m, n, k, 1, tile, 132)
    worth = min(k // (8 * tile.k), 8191 // count(m, n, tile))
    best = min(cycles(p, "half", tile, other) for other in range(1, max(worth, 1) + 1))
    found = cycles(p, "half", tile, parts)
    assert found <= 1.01 * best or (parts == 1 and best > 0.94 * found)


@settings(max_examples=60)
@given(m=st.integers(1, 20000), n=st.integers(1, 20000), k=st.integers(1, 20000),
       among=st.sampled_from([78, 114, 132, 160]))  # fmt: skip
def test_sums_are_split_only_where_that_is_faster(m, n, k, among):
    tile = gemm_config.by_rule("half", m, n, k, among=among)
    p = Product(m, n, k, 1, among)
    parts, span = gemm_config.parts_of("half", m, n, k, 1, tile, among)
    assert (parts - 1) * span < k <= parts * span
    assert 0 < efficiency(p, tile, parts) <= 1
    assert cycles(p, "half", tile) >= cycles(p, "half", tile, parts) - 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("specialized", [0, 1])
@pytest.mark.parametrize("reads", [False, True])
def test_parts_of_a_tile_are_stored(dtype, specialized, reads):
    a, b = make(40, 24, dtype=dtype), make(24, 136, dtype=dtype)
    end = gemm.Epilogue(make(136, dtype=dtype), make(40, 136, dtype=dtype) if reads else None)
    with poisoned_memory():
        y = torch.empty(40, 136, dtype=dtype)
        tile = Tile(16, 64, 16, 4, 2, specialized)
        gemm_tma.run(gemm_operands.pair(a, b), y, end.args(136), end.form, "half", tile, 4)
    wide = [x.double() for x in (a, b, end.bias)]
    exact = wide[0] @ wide[1] + wide[2] + (end.x.double() if reads else 0)
    assert error(y, exact) < 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_tiles_by_descriptors(layout, dtype):
    a, b = make(40, 24, dtype=dtype), make(24, 72, dtype=dtype)
    a = by_columns(a) if layout[0] == "t" else a
    b = by_columns(b) if layout[1] == "t" else b
    chain = function_of(gelu_and_sum(dtype), ())
    end = gemm.Epilogue(make(72, dtype=dtype), make(40, 72, dtype=dtype), None, None, chain, dtype)
    p = gemm_operands.pair(a, b)
    with poisoned_memory():
        y = torch.empty(40, 72, dtype=dtype)
        tile = Tile(16, 32, 16, 4, 2)
        gemm_tma.run(p, y, end.args(72), end.form, "half", tile, programs=4)
    wide = [x.double() for x in (a, b, end.bias, end.x)]
    exact = wide[3] + torch.nn.functional.gelu(wide[0] @ wide[1] + wide[2])
    assert error(y, exact) < 8 * torch.finfo(dtype).eps


def test_the_precision_of_float32_is_that_of_torch():
    kept = torch.get_float32_matmul_precision()
    try:
        for name, kind in (("highest", "ieee"), ("high", "tf32")):
            torch.set_float32_matmul_precision(name)
            assert gemm_config.kind_of(torch.float32) == kind
    finally:
        torch.set_float32_matmul_precision(kept)
    assert gemm_config.kind_of(torch.float64) == "double"


def test_wide_steps():
    # Rows 2^24 elements apart: offsets inside a tile pass 2^31. Stride 0 saves the memory.
    a = torch.randn(1, 8).expand(300, 8)
    far = torch.as_strided(a.contiguous(), (300, 8), (0, 1))
    p = gemm_operands.pair(far, make(8, 4))
    assert p.a_step == 0
    assert_same(matmul_ref.mm, far, make(8, 4))
