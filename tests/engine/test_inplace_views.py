"""In-place methods that change the shape: as torch's, in every layout, also of views and bases."""

import pytest
import torch

import onefold as flow
from onefold.engine.sbp import parse
from onefold.errors import AutogradError, OnefoldError, OnefoldRuntimeError, SbpError
from onefold.testing.sample_checks import value_of

LAYOUTS = [None, "(S0)", "(S1)", "(B)", "(P)"]
DATA = torch.arange(12.0).reshape(4, 1, 3)


def make(data, sbp, **kwargs):
    if sbp is None:
        return flow.tensor(data, **kwargs)
    return flow.tensor(data, placement=flow.placement("cpu", [0, 1]), sbp=parse(sbp), **kwargs)


CHANGES = {
    "t_": lambda x: x[:, 0].t_(),
    "transpose_": lambda x: x.transpose_(0, 2),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "swapdims_": lambda x: x.swapdims_(1, 2),
    "squeeze_": lambda x: x.squeeze_(),
    "squeeze_ dim": lambda x: x.squeeze_(1),
    "squeeze_ none": lambda x: x.squeeze_(0),
    "unsqueeze_": lambda x: x.unsqueeze_(-1),
    "twice": lambda x: x.transpose_(0, 2).squeeze_(1),
    "as_strided_": lambda x: x.as_strided_((3, 2), (1, 6), 0),
    "view and change": lambda x: x[1:].unsqueeze_(0),
}


@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")
@pytest.mark.parametrize("sbp", LAYOUTS)
@pytest.mark.parametrize("name", CHANGES)
def test_they_change_the_tensor_and_keep_it_a_view(name, sbp, world):
    x, wanted = make(DATA, sbp), DATA.clone()
    view, of_wanted = x[1], wanted[1]
    y, z = CHANGES[name](x), CHANGES[name](wanted)
    assert y.shape == z.shape and y.stride() == z.stride()
    assert torch.equal(value_of(y), z)
    y.mul_(2)  # reaches the base and its views
    z.mul_(2)
    view.add_(1)
    of_wanted.add_(1)
    for ours, theirs in ((x, wanted), (y, z), (view, of_wanted)):
        assert torch.equal(value_of(ours), theirs)


@pytest.mark.parametrize("sbp", [None, "(S0)", "(B)", "(P)"])
def test_gradients_go_through(sbp, world):
    x = make(DATA, sbp, requires_grad=True)
    y = (x * 2).transpose_(0, 2).squeeze_(1)
    (y * y.new_tensor([[1.0, 2, 3, 4]])).sum().backward()
    wanted = DATA.clone().requires_grad_()
    z = (wanted * 2).transpose_(0, 2).squeeze_(1)
    (z * torch.tensor([[1.0, 2, 3, 4]])).sum().backward()
    assert torch.equal(value_of(x.grad), wanted.grad)


def test_what_backward_needs_is_not_lost(world):
    x = flow.ones(2, 3, requires_grad=True)
    y = x * 2
    z = y * y
    y.t_()
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        z.sum().backward()
    with pytest.raises(AutogradError, match="leaf"):
        x.t_()
    assert x.shape == (2, 3)
    with flow.no_grad():
        assert x.t_().shape == (3, 2) and x.is_leaf and x.requires_grad


def test_in_a_graph(world):
    outside = flow.ones(2, 3)

    class Inside(flow.nn.Graph):
        def build(self, x):
            y = (x + 1).t_()
            y[0] = 7
            return y.unsqueeze_(0)

    class Outside(flow.nn.Graph):
        def build(self, x):
            return outside.t_()

    x = flow.tensor([[1.0, 2, 3], [4, 5, 6]])
    assert Inside()(x).tolist() == [[[7, 7], [3, 6], [4, 7]]]
    with pytest.raises(OnefoldRuntimeError, match="keeps its shape while a graph is captured"):
        Outside()(x)
    assert outside.shape == (2, 3)


@pytest.mark.parametrize("sbp", [None, "(S0)", "(S1)", "(B)", "(P)"])
@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("shape", [(3, 3), (7, 2), (2, 5), (3, 3, 3)])
def test_fill_diagonal(shape, wrap, sbp, world):
    x, wanted = make(torch.zeros(shape), sbp), torch.zeros(shape)
    assert x.fill_diagonal_(5, wrap=wrap) is x
    assert torch.equal(value_of(x), wanted.fill_diagonal_(5, wrap=wrap))


def test_fill_diagonal_refuses(world):
    for shape in ((3,), (2, 3, 3)):
        with pytest.raises(OnefoldRuntimeError):
            flow.zeros(shape).fill_diagonal_(1)


@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")
@pytest.mark.parametrize("sbp", LAYOUTS)
@pytest.mark.parametrize("size", [(3, 4), (2, 2), (5, 4), (12,), (0, 3)])
def test_resize(size, sbp, world):
    data = DATA.reshape(4, 3)
    x, wanted = make(data, sbp), data.clone()
    if sbp == "(S1)" and len(size) < 2:
        with pytest.raises(SbpError):
            x.resize_(size)
        assert torch.equal(value_of(x), data)
        return
    assert x.resize_(size) is x and x.shape == size
    kept = min(x.numel(), 12)
    assert torch.equal(value_of(x).flatten()[:kept], wanted.flatten()[:kept])
    assert value_of(x).flatten()[kept:].eq(0).all()
    assert sbp is None or x.sbp == parse(sbp)
    assert x.resize_as_(make(data, sbp)).shape == (4, 3)


def test_resize_refuses(world):
    x = flow.ones(4)
    view = x[:2]
    for tensor in (x, view, flow.ones(4, requires_grad=True)):
        with pytest.raises(OnefoldRuntimeError):
            tensor.resize_(8)
    with pytest.warns(UserWarning, match="deprecated"):
        assert x.resize(2, 2).shape == (2, 2)
    with pytest.warns(UserWarning, match="deprecated"):
        assert x.resize_as(flow.ones(2, 2)).shape == (2, 2)
    with (
        pytest.warns(UserWarning, match="deprecated"),
        pytest.raises(OnefoldRuntimeError, match="resize_"),
    ):
        x.resize(3)


def test_set(world):
    x, y = flow.zeros(2), make([[1.0, 2], [3, 4]], "(S0)")
    assert x.set_(y) is x and x.sbp == y.sbp and x.tolist() == y.tolist()
    x[0, 0] = 9
    y[1, 1] = 7
    assert x.tolist() == y.tolist() == [[9, 2], [3, 7]]
    part = flow.zeros(1).set_(flow.arange(6.0), 1, (2, 2), (2, 1))
    assert part.tolist() == [[1, 2], [3, 4]]
    assert flow.ones(3).set_().shape == (0,)
    for source in (flow.ones(2, dtype=flow.int64), torch.ones(2).untyped_storage()):
        with pytest.raises(OnefoldError):
            flow.zeros(2).set_(source)


@pytest.mark.parametrize("sbp", ["(S0)", "(B)", "(P)"])
def test_slice_update(sbp, world):
    x = make(torch.arange(5.0), sbp)
    y = flow.slice_update(x, x.new_tensor([7, 8]), [(1, 4, 2)])
    assert y is x and x.tolist() == [0, 7, 2, 8, 4]
    with pytest.raises(OnefoldError):
        flow.slice_update(x, x, [(1, 2)])


# Strides


STRIDED = {
    "whole": lambda x: x,
    "transposed": lambda x: x.t(),
    "row": lambda x: x[1],
    "steps": lambda x: x[1:, ::2],
    "expanded": lambda x: x[:, :1].expand(4, 5),
    "of a view": lambda x: x.t()[1:],
    "conjugate": lambda x: x.conj(),
}


@pytest.mark.parametrize("sbp", LAYOUTS)
@pytest.mark.parametrize("name", STRIDED)
def test_strides_are_torchs_in_every_layout(name, sbp, world):
    data = torch.arange(12.0).reshape(4, 3)
    y, z = STRIDED[name](make(data, sbp)), STRIDED[name](data)
    assert (y.stride(), y.storage_offset()) == (z.stride(), z.storage_offset())
    assert y.is_contiguous() == z.is_contiguous()
    assert y.stride(-1) == z.stride(-1)


@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")
@pytest.mark.parametrize("sbp", LAYOUTS)
def test_as_strided_is_a_view_of_the_base(sbp, world):
    data = torch.arange(12.0).reshape(4, 3)
    x, wanted = make(data, sbp), data.clone()
    y, z = x[1:].as_strided((2, 2), (4, 1)), wanted[1:].as_strided((2, 2), (4, 1))
    assert torch.equal(value_of(y), z)
    y.zero_()
    z.zero_()
    assert torch.equal(value_of(x), wanted)
    windows = x.as_strided((3, 2), (1, 1))
    assert torch.equal(value_of(windows), wanted.as_strided((3, 2), (1, 1)))
    with pytest.raises(OnefoldRuntimeError, match="more than one element"):
        windows.zero_()


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [((2,), (1, 1), 0), ((2,), (-1,), 0), ((2, 2), (10, 3), 0), ((2,), (1,), 11)],
)
def test_as_strided_refuses(size, stride, offset, world):
    with pytest.raises(OnefoldRuntimeError):
        flow.zeros(4, 3).as_strided(size, stride, offset)
