"""Arguments at the edge of what ops take: the value is torch's, or both are errors."""

import inspect
import itertools
from math import prod

import pytest
import torch

import onefold as flow
from onefold.engine.placement import Placement
from onefold.engine.sbp import broadcast
from onefold.errors import OnefoldError
from onefold.testing.manual_layouts import make_global, make_local
from onefold.testing.sample_checks import value_of

TWO = Placement("cpu", [0, 1])
MAKERS = {"local": make_local, "global": lambda x: make_global(x, TWO, (broadcast,))}
DTYPES = [torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64]


def assert_as_torch(torchs, ours, *given, make=make_local):
    """The functions on torch tensors and on ours give the same value, or raise an error both."""
    try:
        wanted = torchs(*given)
    except (RuntimeError, IndexError):
        with pytest.raises(OnefoldError):
            ours(*[make(x) if isinstance(x, torch.Tensor) else x for x in given])
        return
    found = value_of(ours(*[make(x) if isinstance(x, torch.Tensor) else x for x in given]))
    assert found.dtype is wanted.dtype
    torch.testing.assert_close(found, wanted)


def bounds(dtype, ndim, value):
    return torch.full((2,) * ndim, value).to(dtype)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool], ids=str)
@pytest.mark.parametrize("ndim", [0, 1])
def test_clamp_promotes_all_three_together(dtype, ndim):
    x = bounds(dtype, ndim, 3)
    tensors = list(itertools.product(DTYPES, (0, 1)))
    lows = [None, 1, 1.5, True, *[bounds(*kind, 1.5) for kind in tensors]]
    highs = [None, 2, 2.5, True, *[bounds(*kind, 2.5) for kind in tensors]]
    for low, high in itertools.product(lows, highs):
        if low is None and high is None:
            continue
        try:
            wanted = torch.clamp(x, low, high)
        except (TypeError, RuntimeError):
            continue  # torch has no form for a number next to a tensor with dims
        given = [make_local(b) if isinstance(b, torch.Tensor) else b for b in (low, high)]
        found = value_of(flow.clamp(make_local(x), *given))
        assert found.dtype is wanted.dtype, (low, high)
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_gradient_of_unfold_without_dims(make):
    for size, step in ((1, 1), (0, 1), (1, 3)):
        a = torch.tensor(2.0, requires_grad=True)
        x = make(a.detach()).requires_grad_()
        wanted, found = a.unfold(0, size, step), x.unfold(-1, size, step)
        torch.testing.assert_close(value_of(found.detach()), wanted.detach())
        wanted.sum().backward()
        found.sum().backward()
        torch.testing.assert_close(value_of(x.grad), a.grad)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("alpha", [0.5, 1, 2, 2.0, 2.9, -1.5])
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_index_add_takes_alpha_in_the_dtype_of_the_input(dtype, alpha, make):
    x, index = torch.arange(4).to(dtype), torch.tensor([0, 2, 0])
    source = torch.tensor([3, 5, 1]).to(dtype)
    assert_as_torch(
        lambda *given: torch.index_add(given[0], 0, *given[1:], alpha=alpha),
        lambda *given: flow.index_add(given[0], 0, *given[1:], alpha=alpha),
        x,
        index,
        source,
        make=make,
    )


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("shape", [(), (3,), (0,), (0, 3), (3, 0)])
@pytest.mark.parametrize("at", [[], [0], [1, 1], [5], [-1]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_index_fill(dtype, at, shape, make):
    x, index = torch.zeros(shape, dtype=dtype), torch.tensor(at, dtype=torch.int64)
    for dim in range(-1, len(shape)):
        for value in (1.5, torch.tensor(1.5), torch.tensor([1.5])):
            assert_as_torch(
                lambda x, index, value, dim=dim: torch.index_fill(x, dim, index, value),
                lambda x, index, value, dim=dim: flow.index_fill(x, dim, index, value),
                x,
                index,
                value,
                make=make,
            )


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("name", ["index_add", "index_copy"])
@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_slices_without_dims(shape, name, make):
    x = torch.arange(3.0)[: shape[0]] if shape else torch.tensor(7.0)
    for at in (torch.tensor(0), torch.tensor([0]), torch.tensor([0, 0]), torch.tensor([5])):
        for source in (torch.tensor(2.0), torch.tensor([2.0]), torch.tensor([2.0, 3.0])):
            if len(shape) == 1 and at.numel() != max(source.numel(), 1):
                continue  # torch reads beyond a source of one element, or refuses it
            assert_as_torch(
                lambda *given: getattr(torch, name)(given[0], -1, *given[1:]),
                lambda *given: getattr(flow, name)(given[0], -1, *given[1:]),
                x,
                at,
                source,
                make=make,
            )


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(
    ("equation", "shape"),
    [("ii->i", (1, 3)), ("ii->i", (3, 1)), ("ii", (1, 3)), ("iji->j", (3, 2, 1)), ("ii->", (1, 1)),
     ("...a...->...", (2, 3)), ("......a", (2, 3)), ("ii->i", (3, 3))],
)  # fmt: skip
def test_einsum_of_repeated_letters(equation, shape, make):
    x = torch.arange(prod(shape), dtype=torch.float32).reshape(shape)
    assert_as_torch(
        lambda x: torch.einsum(equation, x), lambda x: flow.einsum(equation, x), x, make=make
    )


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("dropout1d", (2, 3, 0)),
        ("dropout1d", (2, 0, 3)),
        ("dropout2d", (2, 3, 0, 4)),
        ("dropout3d", (2, 3, 4, 4, 0)),
        ("feature_alpha_dropout", (2, 3, 0)),
    ],
)
def test_dropout_of_channels_without_elements(name, shape, make):
    assert_as_torch(
        lambda x: getattr(torch.nn.functional, name)(x, 0.5, True),
        lambda x: getattr(flow.nn.functional, name)(x, 0.5, True),
        torch.zeros(shape),
        make=make,
    )


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("pads", [(1, -1), (-1, 1), (-1, 2), (2, -1), (-1, -1), (1, 1, -1, 1)])
def test_circular_padding_that_cuts_off(pads, make):
    x = torch.arange(24.0).reshape(2, 3, 4)
    x = x if len(pads) == 2 else x[None]
    assert_as_torch(
        lambda x: torch.nn.functional.pad(x, pads, "circular"),
        lambda x: flow.nn.functional.pad(x, pads, "circular"),
        x,
        make=make,
    )


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("ord", [float("inf"), -float("inf"), 2.0])
@pytest.mark.parametrize("dim", [-1, -2, (-1,), (-1, -2), 0, 1])
def test_vector_norms_without_elements(dim, ord, make):
    assert_as_torch(
        lambda x: torch.linalg.vector_norm(x, ord, dim),
        lambda x: flow.linalg.vector_norm(x, ord, dim),
        torch.zeros(0, 3),
        make=make,
    )


SCALED = [torch.int32, torch.int64, torch.float16, torch.float32, torch.float64]


@pytest.mark.parametrize("by", [0.1, 3])
@pytest.mark.parametrize("name", ["add", "sub", "rsub"])
def test_alpha_scales_in_the_dtype_of_the_result(name, by):
    for kinds in itertools.product(SCALED, repeat=2):
        for ndims in itertools.product((0, 1), repeat=2):
            tensors = [bounds(*kind, 3) for kind in zip(kinds, ndims, strict=True)]
            assert_as_torch(
                lambda *given: getattr(torch, name)(*given, alpha=by),
                lambda *given: getattr(flow, name)(*given, alpha=by),
                *tensors,
            )


@pytest.mark.parametrize("by", [0.1, 3])
@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_value_scales_in_the_dtype_of_the_result(name, by):
    for kinds in itertools.product(SCALED, repeat=3):
        for ndims in [(1, 1, 1), (0, 1, 1), (0, 0, 0)]:
            tensors = [bounds(*kind, 3) for kind in zip(kinds, ndims, strict=True)]
            assert_as_torch(
                lambda *given: getattr(torch, name)(*given, value=by),
                lambda *given: getattr(flow, name)(*given, value=by),
                *tensors,
            )


def test_the_form_of_a_call_is_bound_once(monkeypatch):
    def calls():
        edges = flow.tensor([1.0, 2.0, 3.0])
        places = flow.searchsorted(edges, edges, right=True)
        spread = flow.linalg.matrix_norm(flow.outer(edges, edges), "nuc", dim=(1, 0))
        losses = flow.nn.functional.gaussian_nll_loss(edges, edges + 1, var=edges)
        return places.tolist(), round(spread.item(), 4), round(losses.item(), 4)

    first = calls()
    monkeypatch.setattr(inspect.Signature, "bind", None)
    assert calls() == first
    monkeypatch.undo()
    for _ in range(2):
        with pytest.raises(TypeError, match=r"searchsorted\(\): got an unexpected .*'side_'"):
            flow.searchsorted(flow.ones(3), flow.ones(3), side_="left")
