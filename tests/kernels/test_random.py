"""Random numbers: the right words, the right distributions, and the same values in every cut."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from philox_oracle import CALL, SEED, wide_oracle, word_oracle

from onefold.errors import OnefoldError
from onefold.kernels import philox, random_ref

# Every way to draw, as f(shape, offset, size, seed=, call=, device=).
KINDS = {
    "bits": random_ref.bits,
    "uniform": random_ref.uniform,
    "uniform_bf16": partial(random_ref.uniform, low=-3.0, high=5.0, dtype=torch.bfloat16),
    "uniform_f16": partial(random_ref.uniform, dtype=torch.float16),
    "uniform_f64": partial(random_ref.uniform, low=2.0, high=3.0, dtype=torch.float64),
    "normal": random_ref.normal,
    "normal_bf16": partial(random_ref.normal, mean=0.25, std=0.02, dtype=torch.bfloat16),
    "normal_f64": partial(random_ref.normal, mean=-1.0, std=3.0, dtype=torch.float64),
    "exponential": partial(random_ref.exponential, scale=0.7),
    "exponential_f64": partial(random_ref.exponential, dtype=torch.float64),
    "trunc_normal": partial(random_ref.trunc_normal, std=0.02, low=-0.04, high=0.03),
    "trunc_normal_f64": partial(random_ref.trunc_normal, dtype=torch.float64),
    "randint": partial(random_ref.randint, low=-7, high=1000),
    "randint_all": partial(random_ref.randint, low=-(2**63), high=2**63),
    "keep_mask": partial(random_ref.keep_mask, p=0.3),
    "dropout_mask": partial(random_ref.dropout_mask, p=0.3, dtype=torch.float16),
}
every_kind = pytest.mark.parametrize("draw", KINDS.values(), ids=KINDS.keys())


def whole(draw, *shape, seed=SEED, call=CALL, **options):
    return draw(shape, (0,) * len(shape), shape, seed=seed, call=call, **options)


def same(a, b):
    """Equal bit for bit, the signs of zeros included."""
    return (a.dtype, a.shape) == (b.dtype, b.shape) and torch.equal(
        a.contiguous().flatten().view(torch.uint8), b.contiguous().flatten().view(torch.uint8)
    )


def assert_box_is_slice(draw, shape, offset, size):
    logical = draw(shape, (0,) * len(shape), shape, seed=SEED, call=CALL)
    box = draw(shape, offset, size, seed=SEED, call=CALL)
    cut = logical[tuple(slice(o, o + s) for o, s in zip(offset, size, strict=True))]
    assert same(box, cut), f"box at {offset} of {size} in {shape}"


@st.composite
def boxes(draw):
    least = draw(st.sampled_from([0, 1, 1, 1]))  # mostly boxes with something in them
    shape = tuple(draw(st.lists(st.integers(least, 9), max_size=4)))
    offset = tuple(draw(st.integers(0, n - least)) for n in shape)
    size = tuple(draw(st.integers(least, n - o)) for n, o in zip(shape, offset, strict=True))
    return shape, offset, size


# Words


def test_elements_take_their_word_in_row_major_order():
    assert whole(random_ref.bits, 3, 5).flatten().tolist() == [word_oracle(e) for e in range(15)]


def test_values_never_change():
    """Users' weights depend on these; a change here changes every run that they ever made."""
    draw = partial(whole, seed=1, call=2)
    assert draw(random_ref.bits, 4).tolist() == [3878945999, 2364392915, 1057429302, 168492509]
    assert draw(random_ref.uniform, 2).tolist() == [0.9031374454498291, 0.5505030751228333]
    assert draw(random_ref.uniform, 2, dtype=torch.float64).tolist() == [
        0.5505031244603771,
        0.03923021937864868,
    ]
    assert draw(random_ref.normal, 2).tolist() == [-0.4288628101348877, -0.14084626734256744]
    assert draw(random_ref.normal, 2, dtype=torch.float64).tolist() == [
        1.0596070947669056,
        0.2666047618403902,
    ]
    assert draw(random_ref.trunc_normal, 2).tolist() == [1.1993012428283691, 0.12112805247306824]
    assert draw(random_ref.randint, 6, low=0, high=100).tolist() == [55, 3, 85, 5, 35, 49]
    assert random_ref.randperm(8, seed=1, call=2).tolist() == [0, 7, 2, 1, 3, 4, 6, 5]


# Boxes


@every_kind
@given(box=boxes())
def test_box_is_the_slice_of_the_whole(draw, box):
    assert_box_is_slice(draw, *box)


@given(
    box=boxes(), chunk=st.integers(4, 12), threads=st.integers(1, 3),
    name=st.sampled_from(sorted(KINDS)),
)  # fmt: skip
def test_box_does_not_depend_on_chunks_and_threads(box, chunk, threads, name):
    expected = KINDS[name](*box, seed=SEED, call=CALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(philox, "CPU_CHUNK", chunk)
        patch.setattr(philox, "MIN_THREADED", 1)
        patch.setattr(torch, "get_num_threads", lambda: threads)
        patch.setattr(random_ref, "drawn_ahead", lambda *args, **kwargs: None)
        assert same(KINDS[name](*box, seed=SEED, call=CALL), expected)


@pytest.mark.parametrize(
    ("shape", "offset", "size"),
    [
        ((100_003,), (1,), (100_001,)),
        ((3, 70_001), (0, 2), (3, 69_998)),
        ((40_001, 3), (1, 1), (40_000, 1)),
        ((30, 20, 130), (3, 0, 7), (27, 20, 120)),
    ],
)
@pytest.mark.parametrize("name", ["bits", "normal", "uniform_f64", "randint"])
def test_box_of_several_chunks(name, shape, offset, size):
    assert_box_is_slice(KINDS[name], shape, offset, size)


def test_the_checker_of_boxes_sees_a_wrong_offset():
    def local(shape, offset, size, **draw):
        return random_ref.normal(size, (0,) * len(size), size, **draw)

    assert_box_is_slice(local, (4, 6), (0, 0), (2, 6))
    with pytest.raises(AssertionError):
        assert_box_is_slice(local, (4, 6), (2, 0), (2, 6))


@every_kind
def test_empty_and_scalar_boxes(draw):
    assert whole(draw, 0, 3).shape == (0, 3)
    assert draw((4, 5), (4, 0), (0, 5), seed=SEED, call=CALL).shape == (0, 5)
    scalar = whole(draw)
    assert scalar.shape == ()
    assert same(scalar, whole(draw, 1)[0])


@given(
    row=st.integers(0, 2**20 - 3),
    column=st.integers(0, 2**40 - 9),
    rows=st.integers(1, 3),
    columns=st.integers(1, 9),
)
def test_box_far_inside_a_huge_shape(row, column, rows, columns):
    shape, offset, size = (2**20, 2**40), (row, column), (rows, columns)
    expected = [[(row + i) * 2**40 + column + j for j in range(columns)] for i in range(rows)]
    words = random_ref.bits(shape, offset, size, seed=SEED, call=CALL)
    assert words.tolist() == [[word_oracle(e) for e in line] for line in expected]
    wide = random_ref.randint(shape, offset, size, low=0, high=2**63, seed=SEED, call=CALL)
    assert wide.tolist() == [[wide_oracle(e) >> 1 for e in line] for line in expected]


@every_kind
def test_values_beyond_2_to_36_are_those_of_a_larger_box(draw):
    shape = (2**14, 2**22, 7)
    at = partial(draw, shape, seed=SEED, call=CALL)
    larger = at(offset=(2**13, 2**21 - 1, 0), size=(2, 3, 7))
    assert same(at(offset=(2**13 + 1, 2**21, 3), size=(1, 2, 3)), larger[1:, 1:, 3:6])


@pytest.mark.gpu
@every_kind
def test_cuda_has_the_bits_of_the_cpu(draw):
    for shape, offset, size in [
        ((7, 9, 131), (1, 0, 3), (5, 9, 101)),
        ((1_000_003,), (5,), (999_998,)),
        ((2**14, 2**22, 7), (2**13, 2**21, 1), (2, 5, 3)),
    ]:
        on_cuda = draw(shape, offset, size, seed=SEED, call=CALL, device="cuda")
        assert on_cuda.device.type == "cuda"
        assert same(on_cuda.cpu(), draw(shape, offset, size, seed=SEED, call=CALL))


@every_kind
def test_seed_and_call_select_the_numbers(draw):
    base = whole(draw, 64, seed=5, call=6)
    assert same(base, whole(draw, 64, seed=5 - 2**64, call=6 + 2**64))
    others = [(6, 5), (5, 7), (5 + 2**32, 6), (5, 6 + 2**32), (-5, 6)]
    drawn = [base] + [whole(draw, 64, seed=seed, call=call) for seed, call in others]
    assert len({tuple(values.tolist()) for values in drawn}) == len(drawn)


# Exact values


def test_uniform_is_the_top_24_or_53_bits():
    words = whole(random_ref.bits, 999).tolist()
    assert whole(random_ref.uniform, 999).tolist() == [(word >> 8) * 2.0**-24 for word in words]
    wide = [(wide_oracle(e) >> 11) * 2.0**-53 for e in range(99)]
    assert whole(random_ref.uniform, 99, dtype=torch.float64).tolist() == wide


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_uniform_is_the_rounded_float32(dtype):
    rounded = whole(random_ref.uniform, 100_000).to(dtype)
    below_one = float(torch.nextafter(torch.tensor(1.0, dtype=dtype), torch.tensor(0, dtype=dtype)))
    assert rounded.max() == 1.0, "no value here would have reached 1"
    drawn = whole(random_ref.uniform, 100_000, dtype=dtype)
    assert same(drawn, rounded.clamp(max=below_one))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("low", "high"), [(1.0, 1.0 + 2**-6), (-1.0, 0.0), (-0.1, 0.1), (0.3, 0.7), (3.0, 3.0)]
)
def test_uniform_stays_in_its_half_open_interval(dtype, low, high):
    values = whole(random_ref.uniform, 20_000, low=low, high=high, dtype=dtype).double()
    lowest = torch.tensor(low, dtype=dtype).double()
    assert values.min() >= lowest
    assert values.max() < high or low == high == values.max()


def test_normal_is_mean_plus_std_times_the_standard_one():
    z = whole(random_ref.normal, 1001)
    expected = z * 0.3 + 0.7
    assert same(whole(random_ref.normal, 1001, mean=0.7, std=0.3), expected)
    half = whole(random_ref.normal, 1001, mean=0.7, std=0.3, dtype=torch.bfloat16)
    assert same(half, expected.bfloat16())
    assert same(whole(random_ref.normal, 5, mean=2.0, std=0.0), torch.full((5,), 2.0))


def test_normal_is_box_muller_s():
    words = whole(random_ref.bits, 1 << 20).double().numpy()
    u, turn = (words[0::2] + 0.5) * 2.0**-32, words[1::2] * 2.0**-32
    radius = np.sqrt(-2.0 * np.log(u))
    z = whole(random_ref.normal, 1 << 20).double().numpy()
    assert np.abs(z[0::2] - radius * np.cos(2 * np.pi * turn)).max() < 1e-4
    assert np.abs(z[1::2] - radius * np.sin(2 * np.pi * turn)).max() < 1e-4


@given(
    low=st.integers(-(2**63), 2**63 - 1),
    count=st.integers(1, 64).flatmap(lambda k: st.integers(1, 2**k)),
)
def test_randint_is_the_high_product(low, count):
    high = min(low + count, 2**63)
    drawn = whole(random_ref.randint, 5, low=low, high=high).tolist()
    assert drawn == [low + (wide_oracle(e) * (high - low) >> 64) for e in range(5)]


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool]
)
def test_randint_fills_every_integer_type(dtype):
    least, most = (
        (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    )
    drawn = whole(random_ref.randint, 4000, low=least, high=most + 1, dtype=dtype)
    assert drawn.dtype == dtype
    assert same(drawn, whole(random_ref.randint, 4000, low=least, high=most + 1).to(dtype))
    if most - least < 256:
        assert drawn.unique().tolist() == list(range(least, most + 1))
    assert whole(random_ref.randint, 9, low=3, high=4, dtype=torch.float32).tolist() == [3.0] * 9


@pytest.mark.parametrize("p", [0.0, 2**-32, 0.1, 0.5, 1 - 2**-32, 1.0])
def test_masks_compare_the_word_with_the_threshold(p):
    words = whole(random_ref.bits, 4001)
    keep = whole(random_ref.keep_mask, 4001, p=p)
    assert same(keep, words >= math.floor(p * 2**32))
    mask = whole(random_ref.dropout_mask, 4001, p=p, dtype=torch.float64)
    assert same(mask, keep.double() * (1 / (1 - p) if p < 1 else 0))
    assert keep.all() or p > 0
    assert not keep.any() or p < 1


def test_a_word_at_the_threshold_is_kept():
    words = whole(random_ref.bits, 9)
    keep = whole(random_ref.keep_mask, 9, p=words[4].item() / 2**32)
    assert same(keep, words >= words[4])
    assert keep[4]


# Distributions: fixed seeds, bounds a few standard errors wide


def assert_follows(values, cdf):
    """Kolmogorov and Smirnov's distance, at a level of about 1e-4."""
    ordered = values.double().sort().values
    n = len(ordered)
    expected, rank = cdf(ordered), torch.arange(n) / n
    distance = max((expected - rank).max(), (rank + 1 / n - expected).max())
    assert distance * math.sqrt(n) < 2.2, f"distance {distance}"


def test_the_checker_of_distributions_sees_a_small_shift():
    values = whole(random_ref.uniform, 1 << 18)
    assert_follows(values, lambda x: x)
    with pytest.raises(AssertionError):
        assert_follows(values * 0.99, lambda x: x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_is_uniform(dtype):
    assert_follows(
        whole(random_ref.uniform, 1 << 20, low=-2.0, high=6.0, dtype=dtype), lambda x: (x + 2) / 8
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_is_normal(dtype):
    n = 1 << 21
    z = whole(random_ref.normal, n, dtype=dtype).double()
    assert_follows(z, torch.special.ndtr)
    assert abs(z.mean()) < 4 / math.sqrt(n)
    assert abs(z.var() - 1) < 4 * math.sqrt(2 / n)
    assert abs((z**3).mean()) < 4 * math.sqrt(15 / n)
    assert abs((z**4).mean() - 3) < 4 * math.sqrt(96 / n)
    for sigmas in (1, 2, 3, 4):
        chance = math.erfc(sigmas / math.sqrt(2))
        found = (z.abs() > sigmas).double().mean()
        assert abs(found - chance) < 4 * math.sqrt(chance / n)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exponential_is_exponential(dtype):
    x = whole(random_ref.exponential, 1 << 20, scale=0.5, dtype=dtype)
    assert x.min() > 0
    assert_follows(x, lambda x: -torch.expm1(-2 * x))
    u = whole(random_ref.uniform, 1 << 20, dtype=dtype)
    torch.testing.assert_close(x.double(), -torch.log1p(-u.double()) / 2, rtol=1e-5, atol=1e-7)


def test_trunc_normal_is_the_normal_inside_its_bounds():
    mean, std, low, high = 0.5, 2.0, -1.0, 4.0
    options = {"mean": mean, "std": std, "low": low, "high": high}
    values = whole(random_ref.trunc_normal, 1 << 20, **options)
    assert low <= values.min() < low + 1e-4
    assert high - 1e-4 < values.max() <= high
    below, above = torch.special.ndtr(torch.tensor([low - mean, high - mean]).double() / std)
    assert_follows(
        values, lambda x: (torch.special.ndtr((x - mean) / std) - below) / (above - below)
    )
    half = whole(random_ref.trunc_normal, 1 << 16, dtype=torch.bfloat16, low=-0.3, high=0.3)
    assert half.abs().max().double() <= 0.3


def test_open_bounds_give_the_whole_normal():
    values = whole(random_ref.trunc_normal, 1 << 18, low=-math.inf, high=math.inf)
    assert_follows(values, torch.special.ndtr)


def test_neighbors_calls_and_seeds_are_uncorrelated():
    n = 1 << 18
    z = whole(random_ref.normal, n)
    others = [z.roll(1), z.roll(2), z.roll(4), whole(random_ref.normal, n, call=CALL + 1)]
    others += [whole(random_ref.normal, n, seed=SEED + 1), z.view(512, 512).T.flatten()]
    for other in others:
        assert abs((z * other).mean()) < 4 / math.sqrt(n)
        assert abs(((z**2 - 1) * (other**2 - 1)).mean()) < 4 * 2 / math.sqrt(n)


@pytest.mark.parametrize("n", [2, 7, 1000])
def test_randint_is_even(n):
    draws = 1 << 17
    counts = torch.bincount(whole(random_ref.randint, draws, low=0, high=n), minlength=n)
    chi_squared = ((counts - draws / n) ** 2 / (draws / n)).sum()
    assert abs(chi_squared - (n - 1)) < 4 * math.sqrt(2 * (n - 1))


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_randperm_permutes(n):
    drawn = random_ref.randperm(n, seed=SEED, call=CALL, dtype=torch.int32)
    assert drawn.dtype == torch.int32
    assert drawn.sort().values.tolist() == list(range(n))


def test_randperm_reaches_every_order_alike():
    draws = 2400
    found = [tuple(random_ref.randperm(4, seed=SEED, call=call).tolist()) for call in range(draws)]
    counts = np.array([found.count(order) for order in set(found)])
    assert len(counts) == 24
    assert ((counts - draws / 24) ** 2 / (draws / 24)).sum() < 23 + 4 * math.sqrt(46)


# Errors


@pytest.mark.parametrize(
    ("draw", "builtin", "says"),
    [
        (
            partial(random_ref.uniform, low=2.0, high=1.0),
            ValueError,
            "low <= high.*low=2.0, high=1.0",
        ),
        (partial(random_ref.uniform, low=math.nan), ValueError, "low=nan"),
        (partial(random_ref.uniform, dtype=torch.int64), TypeError, "floating.*torch.int64"),
        (partial(random_ref.normal, std=-1.0), ValueError, "std >= 0.*std=-1.0"),
        (partial(random_ref.normal, dtype=torch.bool), TypeError, "floating.*torch.bool"),
        (partial(random_ref.trunc_normal, std=0.0), ValueError, "std=0.0"),
        (partial(random_ref.trunc_normal, low=2.0, high=2.0), ValueError, "low=2.0, high=2.0"),
        (partial(random_ref.randint, low=5, high=5), ValueError, "low < high.*low=5, high=5"),
        (
            partial(random_ref.randint, low=0, high=257, dtype=torch.uint8),
            ValueError,
            r"\[0, 255\]",
        ),
        (partial(random_ref.randint, low=0, high=3, dtype=torch.bool), ValueError, r"\[0, 1\]"),
        (
            partial(random_ref.randint, low=0, high=2**63 + 1),
            ValueError,
            "high=9223372036854775809",
        ),
        (partial(random_ref.keep_mask, p=1.5), ValueError, r"\[0, 1\].*p=1.5"),
        (partial(random_ref.dropout_mask, p=math.nan), ValueError, "p=nan"),
        (partial(random_ref.dropout_mask, p=0.5, dtype=torch.int64), TypeError, "torch.int64"),
        (partial(random_ref.keep_mask, p=-0.1), ValueError, "p=-0.1"),
    ],
)
def test_errors_say_what_is_allowed(draw, builtin, says):
    with pytest.raises(builtin, match=says) as caught:
        whole(draw, 3)
    assert isinstance(caught.value, OnefoldError)


def test_randperm_of_nothing_can_be_viewed_as_another_dtype():
    assert random_ref.randperm(0, seed=0, call=0).view(torch.uint8).tolist() == []


def test_randperm_of_a_negative_number():
    with pytest.raises(ValueError, match="n=-1"):
        random_ref.randperm(-1, seed=0, call=0)


@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(0, 3)), max_size=80))
def test_the_order_of_keys_is_stable(keys):
    keys = torch.tensor(keys, dtype=torch.int64)
    assert torch.equal(random_ref._order(keys), torch.argsort(keys, stable=True))
