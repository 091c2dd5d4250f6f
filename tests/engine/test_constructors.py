"""Tensor(...), typed tensors, type() and data that is taken without a copy, as in torch."""

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.engine.sbp import parse
from onefold.errors import OnefoldError, OnefoldRuntimeError, OnefoldTypeError
from onefold.testing.sample_checks import value_of

PLACES = [([0, 1], "(S0)"), ([1, 0, 2], "(S1)"), ([0, 1], "(B)"), ([[0, 1], [2, 3]], "(S1, S0)")]


def layouts():
    for ranks, sbp in PLACES:
        yield {"placement": flow.placement("cpu", ranks), "sbp": parse(sbp)}


ARGUMENTS = [
    (), (3,), (2, 3), (torch.Size([2, 3]),), ([2, 3],), ((2, 3),), ([[1, 2], [3, 4]],), ([],),
    (np.float64([1.5, 2.5]),), (np.int64(2), 3),
]  # fmt: skip


@pytest.mark.parametrize("given", ARGUMENTS, ids=repr)
@pytest.mark.parametrize("name", ["Tensor", "FloatTensor", "LongTensor"])
def test_sizes_and_data(name, given, world):
    made, wanted = getattr(flow, name)(*given), getattr(torch, name)(*given)
    assert made.shape == wanted.shape and made.dtype == wanted.dtype and made.is_local
    if given and not isinstance(given[0], (int, np.integer, torch.Size)):
        assert torch.equal(made.to_torch(), wanted)


def test_layouts(world):
    for layout in layouts():
        x = flow.Tensor([[1, 2, 3], [4, 5, 6]], **layout)
        assert x.sbp == layout["sbp"] and x.tolist() == [[1, 2, 3], [4, 5, 6]]
        assert flow.Tensor(4, 5, **layout).sbp == layout["sbp"]
        assert flow.LongTensor([[1, 2, 3]], **layout).dtype == flow.int64
    x = flow.Tensor([1.0], requires_grad=True)
    assert x.requires_grad and x.is_leaf
    (x * 3).backward()
    assert x.grad.tolist() == [3]
    assert flow.Tensor(2, 3, dtype=flow.int32).dtype == flow.int32


def test_a_tensor_is_another_name(world):
    x = flow.ones(2)
    y = flow.Tensor(x)
    y[0] = 5
    assert x.tolist() == [5, 1]
    with pytest.raises(OnefoldTypeError, match="expected"):
        flow.Tensor(flow.ones(2, dtype=flow.int64))


@pytest.mark.parametrize("given", [(1, [2]), (1.5,), ("a",), (None,), (2, 3.0)])
def test_bad_arguments(given, world):
    with pytest.raises(OnefoldError):
        flow.Tensor(*given)


def test_subclasses(world):
    class Mine(flow.Tensor):
        pass

    x = Mine([1.0, 2.0])
    assert isinstance(x, flow.Tensor) and (x + 1).tolist() == [2, 3]


def test_typed_tensors_are_types(world):
    x, y = flow.ones(2), flow.ones(2, **next(layouts()))
    for tensor in (x, y):
        assert isinstance(tensor, flow.FloatTensor) and not isinstance(tensor, flow.LongTensor)
        assert isinstance(tensor.double(), flow.DoubleTensor)
    assert not isinstance(1.0, flow.FloatTensor) and not isinstance(torch.ones(1), flow.FloatTensor)
    assert not flow.FloatTensor.is_cuda and flow.FloatTensor.dtype is torch.float32
    assert repr(flow.HalfTensor) == "<class 'onefold.HalfTensor'>"


NAMES = ["BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor",
         "HalfTensor", "IntTensor", "LongTensor", "ShortTensor"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_type_names_and_casts_are_torchs(name, world):
    theirs, x = getattr(torch, name), flow.ones(2, 3, **next(layouts()))
    wanted = torch.ones(2, 3).type(theirs)
    for kind in (getattr(flow, name), theirs, f"torch.{name}", f"onefold.{name}", wanted.dtype):
        y = x.type(kind)
        assert y.dtype == wanted.dtype and y.type() == wanted.type() and y.sbp == x.sbp
    assert getattr(flow, name)(2, 3).type() == f"torch.{name}"


def test_types_that_are_none(world):
    for kind in ("FloatTensor", "torch.FloatTensors", 3, float):
        with pytest.raises(OnefoldTypeError):
            flow.ones(2).type(kind)
    with pytest.raises(OnefoldRuntimeError, match=r"use .dtype"):
        flow.ones(2).to(torch.float8_e5m2).type()


def test_typed_tensors_of_cuda(world):
    kind = flow.cuda.FloatTensor
    assert kind.is_cuda and not isinstance(flow.ones(2), kind)
    assert repr(kind) == "<class 'onefold.cuda.FloatTensor'>"
    if torch.cuda.is_available():
        x = kind(2, 3)
        assert isinstance(x, kind) and x.type() == "torch.cuda.FloatTensor"
        assert isinstance(flow.ones(2).type("torch.cuda.LongTensor"), flow.cuda.LongTensor)
    else:
        for make in (lambda: kind(2, 3), lambda: flow.ones(2).type("torch.cuda.LongTensor")):
            with pytest.raises(OnefoldRuntimeError, match="no CUDA device"):
                make()


def test_default_tensor_type(world):
    try:
        for kind in (flow.DoubleTensor, "torch.DoubleTensor"):
            flow.set_default_tensor_type(kind)
            assert flow.ones(1).dtype == flow.Tensor(1).dtype == flow.float64
            flow.set_default_tensor_type(flow.FloatTensor)
            assert flow.ones(1).dtype == flow.float32
    finally:
        flow.set_default_dtype(flow.float32)
    with pytest.raises(OnefoldTypeError, match="of the cpu"):
        flow.set_default_tensor_type("torch.cuda.FloatTensor")


# After the model of another tensor


def test_new(world):
    for layout in layouts():
        x = flow.ones(4, 6, dtype=flow.float64, **layout)
        for y in (x.new(2, 3), x.new([1, 2]), x.new_tensor([1, 2]), x.new_empty(2, 3)):
            assert y.placement is x.placement and y.dtype == x.dtype
            assert all(sbp == flow.sbp.broadcast for sbp in y.sbp)
        assert x.new([1, 2]).tolist() == [1, 2]


def test_a_global_tensor_gives_global_ones(world):
    """A device says on which type of device; the ranks stay."""
    for layout in layouts():
        x = flow.ones(4, 6, **layout)
        y = x.new_tensor([1, 2], dtype=flow.int64, device="cpu")
        assert y.placement is x.placement and y.dtype == flow.int64 and y.tolist() == [1, 2]
        assert flow.zeros_like(x, device="cpu").sbp == x.sbp
    with pytest.raises(OnefoldTypeError, match="both device"):
        flow.zeros_like(x, device="cpu", placement=x.placement, sbp=x.sbp)
    assert flow.ones(2).new_tensor([1.0], device="cpu").is_local


@pytest.mark.parametrize(
    ("size", "stride"),
    [((2, 3), (3, 1)), ((2, 3), (1, 2)), ((2, 3, 4), (4, 8, 1)), ((0, 2), (2, 1))],
)
def test_empty_strided(size, stride, world):
    wanted = torch.empty_strided(size, stride)
    for layout in ({}, *layouts()):
        x = flow.empty_strided(size, stride, dtype=flow.int64, **layout)
        assert (x.shape, x.stride(), x.dtype) == (wanted.shape, wanted.stride(), torch.int64)
        if layout:
            assert x.sbp == layout["sbp"]
            assert x.new_empty_strided(size, stride).stride() == wanted.stride()
        x.zero_()
        assert value_of(x).eq(0).all()


def test_strides_that_repeat_or_skip(world):
    x = flow.empty_strided((2, 3), (8, 2))
    assert x.stride() == (8, 2) and x.fill_(1).sum() == 6
    split, whole, *_ = [each for each in layouts() if len(each["sbp"]) == 1 and each]
    with pytest.raises(OnefoldRuntimeError, match="use broadcast"):
        flow.empty_strided((2, 3), (8, 2), **split)
    layout = {"placement": whole["placement"], "sbp": flow.sbp.broadcast}
    assert flow.empty_strided((2, 3), (8, 2), **layout).stride() == (8, 2)


# Data that exists


def test_as_tensor_shares_where_it_can(world):
    x, array, theirs = flow.ones(2), np.ones(2), torch.ones(2)
    assert flow.as_tensor(x) is x and flow.as_tensor(x, dtype=flow.float64).dtype == flow.float64
    shared, other = flow.as_tensor(array), flow.as_tensor(theirs)
    array[0] = theirs[0] = 7
    assert shared.tolist() == other.tolist() == [7, 1]
    assert flow.as_tensor(array, dtype=flow.float32).dtype == flow.float32
    assert flow.as_tensor([1, 2]).tolist() == [1, 2]
    layout = next(layouts())
    assert flow.as_tensor([1, 2], **layout).sbp == layout["sbp"]
    y = flow.ones(2, **layout)
    assert flow.as_tensor(y) is y


def test_asarray(world):
    array, x = np.ones(2), flow.ones(2, requires_grad=True)
    shared, copied = flow.asarray(array), flow.asarray(array, copy=True)
    array[0] = 7
    assert shared.tolist() == [7, 1] and copied.tolist() == [1, 1]
    assert flow.asarray(3.5).shape == () and flow.asarray([1, 2], dtype=flow.float32).tolist() == [
        1,
        2,
    ]
    assert not flow.asarray(x).requires_grad and flow.asarray(x, requires_grad=True) is x
    assert flow.asarray(array, requires_grad=True).is_leaf
    with pytest.raises(ValueError, match="alias"):
        flow.asarray(x, dtype=flow.float64, copy=False)


def test_frombuffer(world):
    buffer = bytearray(np.arange(6, dtype=np.int32).tobytes())
    assert flow.frombuffer(buffer, dtype=flow.int32).tolist() == [0, 1, 2, 3, 4, 5]
    assert flow.frombuffer(buffer, dtype=flow.int32, count=2, offset=8).tolist() == [2, 3]
    x = flow.frombuffer(buffer, dtype=flow.int32)
    buffer[0] = 9
    assert x[0] == 9


def test_scalar_tensor(world):
    assert flow.scalar_tensor(3).dtype == flow.float32 and flow.scalar_tensor(3).shape == ()
    x = flow.scalar_tensor(3, dtype=flow.int64, placement=flow.placement("cpu", [0, 1]),
                           sbp=flow.sbp.broadcast)  # fmt: skip
    assert x.item() == 3 and x.dtype == flow.int64


def test_to_a_class_is_an_error_that_says_so(world):
    for kind in (flow.Tensor, flow.FloatTensor, torch.FloatTensor):
        with pytest.raises(OnefoldTypeError, match=r"got the class .*x\.type"):
            flow.ones(2).to(kind)
    x = flow.ones(2)
    assert x.to(flow.float64, False, True).dtype == flow.float64
    assert x.to("cpu", None, False, True) is not x and x.to("cpu", flow.float32) is x


def test_a_parameter_of_a_graph_as_a_tensor(world):
    class Identity(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.m = flow.nn.Linear(2, 2)

        def build(self, x):
            return flow.matmul(x, self.m.weight.to(flow.Tensor))

    graph = Identity()
    weight = graph.m.to(flow.nn.Module).weight
    assert graph.m.weight.to(flow.Tensor) is weight
    assert graph(flow.eye(2)).tolist() == weight.tolist()


def test_the_type_of_all_tensors_is_the_default_one(world):
    x = flow.ones(2, dtype=flow.float64)
    assert x.type(flow.Tensor).type() == x.type(torch.Tensor).type() == "torch.FloatTensor"
    with pytest.raises(TypeError, match="takes no dtype"):
        flow.FloatTensor([1, 2], dtype=flow.int32)
    with pytest.raises(TypeError, match="data must be a sequence"):
        flow.Tensor(True)


@pytest.mark.parametrize("source", ["plain", "leaf", "computed"])
@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_asarray_sets_whether_a_gradient_is_required(source, copy, dtype):
    def made(lib, requires_grad):
        x = lib.ones(2, requires_grad=source != "plain")
        x = x * 2 if source == "computed" else x
        y = lib.asarray(x, copy=copy, dtype=dtype, requires_grad=requires_grad)
        return y.requires_grad, y.is_leaf

    for wanted in (False, True):
        assert made(flow, wanted) == made(torch, wanted)


@pytest.mark.parametrize("lib", [torch, flow])
def test_sizes_that_are_tensors(lib):
    """Collate functions pad to the longest of a batch, whose length is an element of a tensor."""
    longest = lib.tensor([3, 5]).max()
    assert lib.LongTensor(2, longest).shape == (2, 5)
    assert lib.FloatTensor(longest, 2).shape == (5, 2)
    assert lib.ones(1).new(2, longest).shape == (2, 5)
    with pytest.raises(TypeError):
        lib.LongTensor(2, lib.tensor(1.5))
