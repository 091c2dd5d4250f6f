"""Creation: numpy's and torch's values in every layout, random ones bit for bit the same."""

from functools import partial

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.engine.sbp import parse
from onefold.errors import (
    MixedTensorsError,
    OnefoldRuntimeError,
    OnefoldTypeError,
    PlacementError,
    SbpError,
)
from onefold.testing.sample_checks import value_of

# Ranks in an order of their own, more ranks than elements, and meshes with nested splits.
PLACES = [
    ([0], ["(B)", "(S0)"]),
    ([2, 0, 1], ["(S0)", "(B)", "(P)"]),
    ([0, 1, 2, 3, 4, 5, 6, 7], ["(S0)"]),
    ([[0, 3], [1, 2]], ["(S0, S0)", "(B, S0)", "(S0, B)", "(S0, P)", "(P, B)"]),
]
PLACES_2D = [*PLACES, ([1, 0, 2], ["(S1)"]), ([[0, 1, 2], [5, 4, 3]], ["(S1, S0)", "(S1, S1)"])]


def layouts(ndim, partial_too):
    for ranks, texts in PLACES if ndim == 1 else PLACES_2D:
        for text in texts:
            if partial_too or "P" not in text:
                yield {"placement": flow.placement("cpu", ranks), "sbp": parse(text)}


def check_everywhere(make, wanted, partial_too=True, tol=0.0):
    """`make(**layout)` has the wanted value when local and in every layout."""
    local = make()
    assert local.is_local and local.dtype == wanted.dtype and local.shape == wanted.shape
    torch.testing.assert_close(local.to_torch(), wanted, rtol=tol, atol=tol)
    for layout in layouts(wanted.ndim, partial_too):
        x = make(**layout)
        assert x.sbp == layout["sbp"] and x.placement is layout["placement"]
        for position, part in zip(x.placement.owned, x.shards, strict=True):
            assert tuple(part.shape) == x.meta.local_shape(position)
        assert torch.equal(value_of(x), local.to_torch()), f"differs in {layout['sbp']}"


WINDOWS = {
    **{name: {} for name in "bartlett blackman cosine exponential hamming hann nuttall".split()},
    "gaussian": {"std": 2.0},
    "general_cosine": {"a": [0.5, 0.3, 0.2]},
    "general_hamming": {"alpha": 0.6},
    "kaiser": {"beta": 10.0},
}
CONSTANT = {
    "zeros": (partial(flow.zeros, 5, 3), torch.zeros(5, 3)),
    "zeros tuple": (partial(flow.zeros, (5, 3)), torch.zeros(5, 3)),
    "zeros size=": (partial(flow.zeros, size=(5, 3)), torch.zeros(5, 3)),
    "zeros torch.Size": (partial(flow.zeros, torch.Size([5, 3])), torch.zeros(5, 3)),
    "ones int": (partial(flow.ones, 4, dtype=flow.int32), torch.ones(4, dtype=torch.int32)),
    "full": (partial(flow.full, (5, 3), 2.5), torch.full((5, 3), 2.5)),
    "full int": (partial(flow.full, (5,), 7), torch.full((5,), 7)),
    "full bool": (partial(flow.full, (5,), True), torch.full((5,), True)),
    "full empty": (partial(flow.full, (0, 3), 1.0), torch.full((0, 3), 1.0)),
    "arange": (partial(flow.arange, 7), torch.arange(7)),
    "arange steps": (partial(flow.arange, 10, -3, -4), torch.arange(10, -3, -4)),
    "arange big": (
        partial(flow.arange, 2**60, 2**60 + 9, 4),
        torch.arange(2**60, 2**60 + 9, 4),
    ),
    "arange empty": (partial(flow.arange, 3, 3), torch.arange(3, 3)),
    "arange floats": (
        partial(flow.arange, 0.5, 2.0, 0.25, dtype=flow.float64),
        torch.arange(0.5, 2.0, 0.25, dtype=torch.float64),
    ),
    "linspace ints": (
        partial(flow.linspace, 0, 10, 5, dtype=flow.int64),
        torch.linspace(0, 10, 5, dtype=torch.int64),
    ),
    **{
        f"arange {numbers} {dtype}": (
            partial(flow.arange, *numbers, dtype=dtype),
            torch.arange(*numbers, dtype=dtype),
        )
        for numbers in ((0.5, 4, 1.75), (0, 5, 1.5), (-0.5, 3), (5, 0.5, -1.25), (1.9, -3.2, -1.7))
        for dtype in (torch.int64, torch.int32, torch.uint8)
    },
    "arange halves": (
        partial(flow.arange, 0.5, 4, 0.75, dtype=torch.int32),
        torch.arange(0.5, 4, 0.75, dtype=torch.int32),
    ),
    "linspace whole": (
        partial(flow.linspace, 0.5, 4.7, 7, dtype=torch.int32),
        torch.linspace(0.5, 4.7, 7, dtype=torch.int32),
    ),
    "logspace whole": (
        partial(flow.logspace, 0.5, 4.7, 7, dtype=torch.int64),
        torch.logspace(0.5, 4.7, 7, dtype=torch.int64),
    ),
    "linspace one": (partial(flow.linspace, 3.0, 9.0, 1), torch.linspace(3.0, 9.0, 1)),
    "eye": (partial(flow.eye, 5), torch.eye(5)),
    "eye wide": (partial(flow.eye, 3, 7), torch.eye(3, 7)),
    "eye tall int": (
        partial(flow.eye, 7, 3, dtype=flow.int64),
        torch.eye(7, 3, dtype=torch.int64),
    ),
    "tensor": (
        partial(flow.tensor, [[1, 2], [3, 4], [5, 6]]),
        torch.tensor([[1, 2], [3, 4], [5, 6]]),
    ),
    "tensor numpy": (
        partial(flow.tensor, np.arange(6.0).reshape(2, 3)),
        torch.arange(6, dtype=torch.float64).reshape(2, 3),
    ),
    "tensor dtype": (
        partial(flow.tensor, [1, 0, 2], dtype=flow.float16),
        torch.tensor([1, 0, 2], dtype=torch.float16),
    ),
    "tensor bools": (partial(flow.tensor, [True, False]), torch.tensor([True, False])),
}
CLOSE = {
    "linspace": (partial(flow.linspace, -1.0, 2.0, 11), torch.linspace(-1.0, 2.0, 11)),
    "arange floats": (partial(flow.arange, 0.0, 1.0, 0.1), torch.arange(0.0, 1.0, 0.1)),
    "logspace": (partial(flow.logspace, -1.0, 2.0, 7, 2.0), torch.logspace(-1.0, 2.0, 7, 2.0)),
    "hann": (partial(flow.hann_window, 9), torch.hann_window(9)),
    "hann symmetric": (
        partial(flow.hann_window, 9, periodic=False),
        torch.hann_window(9, periodic=False),
    ),
    **{
        name: (partial(getattr(flow, name), 9), getattr(torch, name)(9))
        for name in ("bartlett_window", "blackman_window", "hamming_window", "kaiser_window")
    },
    **{
        name: (partial(getattr(flow.fft, name), 9, d=0.5), getattr(torch.fft, name)(9, d=0.5))
        for name in ("fftfreq", "rfftfreq")
    },
    **{
        f"windows.{name}": (
            partial(getattr(flow.signal.windows, name), 9, sym=False, **given),
            getattr(torch.signal.windows, name)(9, sym=False, **given),
        )
        for name, given in WINDOWS.items()
    },
}


@pytest.mark.parametrize("name", CONSTANT)
def test_values_are_torchs(name, world):
    make, wanted = CONSTANT[name]
    check_everywhere(make, wanted, partial_too=wanted.dtype != torch.bool)


def test_a_range_of_integers_has_whole_steps():
    with pytest.warns(UserWarning, match="range is deprecated"):
        made = flow.range(1.9, 7.2, 1.7, dtype=torch.int32)
    with pytest.warns(UserWarning, match=r"torch\.range is deprecated"):
        assert torch.equal(made.to_torch(), torch.range(1.9, 7.2, 1.7, dtype=torch.int32))
    with pytest.raises(RuntimeError, match="step must be nonzero"):
        flow.arange(0.5, 4, 0.75, dtype=torch.int64)


@pytest.mark.parametrize("name", CLOSE)
def test_values_are_close_to_torchs(name, world):
    check_everywhere(*CLOSE[name], tol=1e-6)


RANDOM = {
    "rand": partial(flow.rand, 6, 5),
    "rand double": partial(flow.rand, (6, 5), dtype=flow.float64),
    "randn": partial(flow.randn, 6, 5),
    "randn half": partial(flow.randn, 6, 5, dtype=flow.float16),
    "randn empty": partial(flow.randn, 0, 5),
    "normal": partial(flow.normal, 3.0, 0.5, (6, 5)),
    "rand complex": partial(flow.rand, 6, 5, dtype=torch.complex64),
    "normal complex": partial(flow.normal, 3.0, 0.5, (6, 5), dtype=torch.complex128),
    "randint": partial(flow.randint, -4, 9, (6, 5)),
    "randint high": partial(flow.randint, 9, (6, 5)),
    "randperm": partial(flow.randperm, 17),
    "rand_like": lambda **k: flow.rand_like(flow.zeros(6, 5), **k),
    "randn_like": lambda **k: flow.randn_like(flow.zeros(6, 5), **k),
    "randint_like": lambda **k: flow.randint_like(flow.zeros(6, 5), 3, 8, **k),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_do_not_depend_on_the_layout(name, world):
    def make(**layout):
        flow.manual_seed(11)
        flow.rand(3)
        return RANDOM[name](**layout)

    check_everywhere(make, make().to_torch().clone(), partial_too=False)


def test_the_check_of_layouts_can_fail(world):
    with pytest.raises(AssertionError, match="differs"):
        check_everywhere(partial(flow.rand, 6, 5), torch.rand(6, 5), tol=2.0)


def test_random_numbers_have_their_distribution(world):
    flow.manual_seed(0)
    uniform, normal = flow.rand(40000).numpy(), flow.normal(2.0, 3.0, (40000,)).numpy()
    assert uniform.min() >= 0.0 and uniform.max() < 1.0 and abs(uniform.mean() - 0.5) < 0.01
    assert abs(normal.mean() - 2.0) < 0.06 and abs(normal.std() - 3.0) < 0.06
    integers = flow.randint(3, 8, (5000,)).numpy()
    assert set(integers.tolist()) == {3, 4, 5, 6, 7}
    assert sorted(flow.randperm(100).tolist()) == list(range(100))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers_have_torchs_distribution(dtype, world):
    makes = [
        lambda lib: lib.rand(40000, dtype=dtype),
        lambda lib: lib.randn(40000, dtype=dtype, requires_grad=True).detach(),
        lambda lib: lib.randn_like(lib.ones(40000, dtype=dtype)),
        lambda lib: lib.empty(40000, dtype=dtype).normal_(3.0, 2.0),
        lambda lib: lib.empty(40000, dtype=dtype).uniform_(-1.0, 3.0),
        lambda lib: lib.nn.init.xavier_uniform_(lib.empty(200, 200, dtype=dtype)),
    ]
    torch.manual_seed(0)
    flow.manual_seed(0)
    for make in makes:
        ours, theirs = make(flow), make(torch)
        assert ours.dtype == theirs.dtype and ours.is_leaf
        for part in (np.real, np.imag):
            mine, other = part(ours.numpy()), part(theirs.numpy())
            assert abs(mine.mean() - other.mean()) < 0.03
            assert abs(mine.std() / other.std() - 1) < 0.03
        assert abs(np.corrcoef(ours.numpy().real.ravel(), ours.numpy().imag.ravel())[0, 1]) < 0.03


def test_each_call_draws_new_numbers(world):
    flow.manual_seed(5)
    first, second = flow.rand(8).tolist(), flow.rand(8).tolist()
    assert first != second
    own = flow.Generator().manual_seed(5)
    assert flow.rand(8, generator=own).tolist() == first
    assert flow.rand(8).tolist() not in (first, second), "the default generator was left alone"


def test_each_rank_makes_only_its_shard(world, monkeypatch):
    made = []
    real = torch.ones
    monkeypatch.setattr(
        torch, "ones", lambda size, *a, **k: made.append(size) or real(size, *a, **k)
    )
    flow.ones(1000, 4, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.split(0))
    assert [tuple(size) for size in made] == [(500, 4), (500, 4)]


def test_like_keeps_shape_dtype_and_layout(world):
    p = flow.placement("cpu", [[0, 1], [2, 3]])
    x = flow.tensor(np.arange(12).reshape(6, 2), placement=p, sbp=parse("(P, S0)"))
    for make, value in [
        (flow.zeros_like, 0),
        (flow.ones_like, 1),
        (partial(flow.full_like, fill_value=7), 7),
    ]:
        y = make(x)
        assert (y.shape, y.dtype, y.sbp) == (x.shape, x.dtype, parse("(B, S0)"))
        assert y.numpy().tolist() == [[value] * 2] * 6
    assert flow.empty_like(x, dtype=flow.float16).dtype == torch.float16
    moved = flow.ones_like(x, placement=p, sbp=parse("(S1, B)"))
    assert moved.sbp == parse("(S1, B)")
    local = flow.zeros_like(flow.ones(2, 3, dtype=flow.float64), requires_grad=True)
    assert local.is_local and local.dtype == torch.float64 and local.requires_grad


def test_new_makes_tensors_of_the_same_kind(world):
    p = flow.placement("cpu", [0, 1])
    x = flow.zeros(4, 2, dtype=flow.float64, placement=p, sbp=flow.sbp.split(0))
    names = flow.engine.names.names
    for y in (
        names.new_zeros(x, 3),
        names.new_ones(x, (3,)),
        names.new_empty(x, 3),
        names.new_full(x, (3,), 2),
        names.new_tensor(x, [1, 2, 3]),
    ):
        assert y.shape == (3,) and y.dtype == torch.float64
        assert y.placement is p and y.sbp == (flow.sbp.broadcast,)
    assert names.new_tensor(flow.zeros(1), [1, 2]).dtype == torch.float32
    assert names.new_zeros(x, 3, placement=p, sbp=flow.sbp.split(0)).sbp == (flow.sbp.split(0),)


def test_tensor_copies_its_data(world):
    array = np.zeros(3)
    x = flow.tensor(array)
    t = torch.zeros(3)
    y = flow.tensor(t)
    z = flow.tensor(x)
    array += 1
    t += 1
    x.add_(1)
    assert x.tolist() == [1, 1, 1] and y.tolist() == [0, 0, 0] and z.tolist() == [0, 0, 0]


def test_scalars_and_nested_data(world):
    p = flow.placement("cpu", [0, 1])
    assert flow.tensor(3.5, placement=p, sbp=flow.sbp.partial_sum).item() == 3.5
    assert flow.tensor([]).shape == (0,)
    assert flow.tensor([[], []]).shape == (2, 0)
    assert flow.tensor(np.float64(2)).dtype == torch.float64


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")  # by torch
@pytest.mark.parametrize(
    "data",
    [
        lambda t: [t(1.0), t(2.0)],
        lambda t: (t(1), 2.5),
        lambda t: [[t(1), 2], [3, t(4)]],
        lambda t: [t([1.0]), t([2.0])],
        lambda t: [t(1.0, dtype=torch.float64), 2],
        lambda t: [t(1.0, requires_grad=True)],
        lambda t: [t(True), t(False)],
        lambda t: [t(1j), 1.0],
        lambda t: [t(3, dtype=torch.int32)],
    ],
)
def test_lists_of_tensors_of_one_element(data, world):
    for name in ("tensor", "as_tensor"):
        found = getattr(flow, name)(data(flow.tensor))
        wanted = getattr(torch, name)(data(torch.tensor))
        assert found.dtype == wanted.dtype and found.tolist() == wanted.tolist()
        assert not found.requires_grad
    assert flow.tensor([flow.tensor(1)], dtype=flow.float64).dtype is torch.float64


def test_lists_of_tensors_that_are_no_numbers(world):
    p = flow.placement("cpu", [0, 1])
    x = flow.tensor(3.0, placement=p, sbp=flow.sbp.broadcast)
    assert flow.tensor([x, 1.0], placement=p, sbp=flow.sbp.split(0)).tolist() == [3.0, 1.0]
    with pytest.raises(OnefoldTypeError, match=r"only one element.*onefold\.stack"):
        flow.tensor([flow.ones(2), flow.ones(2)])
    endless = []
    endless.append(endless)
    with pytest.raises(OnefoldTypeError, match="too many dimensions"):
        flow.tensor(endless)


def test_requires_grad(world):
    p = flow.placement("cpu", [0, 1])
    x = flow.randn(4, placement=p, sbp=flow.sbp.split(0), requires_grad=True)
    assert x.requires_grad and x.is_leaf
    with pytest.raises(flow.errors.AutogradError, match="only tensors of floating point"):
        flow.arange(4, requires_grad=True)


P2 = partial(flow.placement, "cpu", [0, 1])

BAD = [
    (lambda: flow.ones(4, sbp=flow.sbp.broadcast), PlacementError, "without placement; give both"),
    (lambda: flow.ones(4, placement=P2()), SbpError, "without sbp; give both"),
    (
        lambda: flow.ones(4, placement=[0, 1], sbp=flow.sbp.broadcast),
        PlacementError,
        "must be an onefold.placement",
    ),
    (
        lambda: flow.ones(4, placement=P2(), sbp=flow.sbp.split(1)),
        SbpError,
        "needs a tensor with more than 1 dims",
    ),
    (lambda: flow.ones((), placement=P2(), sbp=flow.sbp.split(0)), SbpError, "use broadcast"),
    (
        lambda: flow.ones(4, placement=P2(), sbp=(flow.sbp.broadcast,) * 2),
        SbpError,
        "sbp has length 2",
    ),
    (
        lambda: flow.ones(4, placement=P2(), sbp=flow.sbp.broadcast, device="cpu"),
        OnefoldTypeError,
        "got both device=",
    ),
    (
        lambda: flow.ones(4, color="red"),
        OnefoldTypeError,
        "ones.. got an unexpected keyword argument 'color'",
    ),
    (
        lambda: flow.ones(4, device="gpu0"),
        OnefoldRuntimeError,
        "a device is 'cpu', 'cuda', 'cuda:N' or 'meta'",
    ),
    (lambda: flow.ones(-1), OnefoldRuntimeError, "sizes must be >= 0"),
    (lambda: flow.ones(2.5), OnefoldTypeError, "sizes must be integers"),
    (lambda: flow.ones(True), OnefoldTypeError, "sizes must be integers"),
    (
        lambda: flow.randn(4, placement=P2(), sbp=flow.sbp.partial_sum),
        SbpError,
        "random source op only support broadcast or split",
    ),
    (lambda: flow.randint(5, 5, (3,)), OnefoldRuntimeError, "needs low < high"),
    (lambda: flow.rand(3, dtype=flow.int64), OnefoldTypeError, "needs a floating dtype"),
    (lambda: flow.normal(0.0, -1.0, (3,)), ValueError, "needs std >= 0"),
    (lambda: flow.randperm(-1), RuntimeError, "sizes must be >= 0"),
    (lambda: flow.arange(0, 5, 0), OnefoldRuntimeError, "step must be nonzero"),
    (lambda: flow.arange(0, 5, -1), OnefoldRuntimeError, "inconsistent with step sign"),
    (lambda: flow.arange(0.0, float("inf")), OnefoldRuntimeError, "unsupported range"),
    (lambda: flow.linspace(0, 1, -2), OnefoldRuntimeError, "sizes must be >= 0"),
    (lambda: flow.tensor("text"), OnefoldTypeError, "got str"),
    (lambda: flow.tensor([[1, 2], [3]]), OnefoldTypeError, "expected sequence of length 2"),
    (
        lambda: flow.tensor(flow.ones(2, placement=P2(), sbp=flow.sbp.broadcast)),
        MixedTensorsError,
        "needs placement= and sbp=",
    ),
]


@pytest.mark.parametrize("index", range(len(BAD)))
def test_bad_input_changes_nothing(index, world):
    call, kind, text = BAD[index]
    state = flow.get_rng_state()
    with pytest.raises(kind, match=text) as caught:
        call()
    assert isinstance(caught.value, flow.OnefoldError)
    assert flow.get_rng_state() == state


def test_cuda_is_an_error_that_names_the_way_out(world, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("ONEFOLD_DEVICE", raising=False)
    for call in (lambda: flow.ones(2, device="cuda"), lambda: flow.ones(2).to("cuda:0")):
        with pytest.raises(OnefoldRuntimeError, match="ONEFOLD_DEVICE=cpu"):
            call()
    with pytest.raises(PlacementError, match="ONEFOLD_DEVICE=cpu"):
        flow.placement("cuda", [0])
    monkeypatch.setenv("ONEFOLD_DEVICE", "cpu")
    assert flow.ones(2, device="cuda:3").device == torch.device("cpu")
    assert flow.placement("cuda", [0]).type == "cpu"


@pytest.mark.parametrize(
    "args",
    [
        (5,), (0,), (3, 3), (2, 9, 3), (9, 2, -3), (-4, 4, 2), (2**63 - 4, 2**63 - 1, 2),
        (-(2**63), -(2**63) + 3), (7, 7, -1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [None, torch.int32, torch.float64])
def test_ranges_are_those_of_torch_in_every_layout(args, dtype):
    if max(map(abs, args)) > 2**31:
        dtype = torch.int64
    expected = torch.arange(*args, dtype=dtype)
    p = flow.placement("cpu", [0, 1])
    for layout in ({}, {"device": "cpu"}, {"placement": p, "sbp": flow.sbp.split(0)}):
        made = flow.arange(*args, dtype=dtype, **layout)
        assert made.dtype == expected.dtype
        assert torch.equal(made.to_torch(), expected)
