"""Reading values: numpy, item, tolist, printing; numpy, torch and DLPack conversion."""

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.engine.sbp import parse
from onefold.errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError

PLACE = 'placement=onefold.placement(type="cpu", ranks=[0, 1])'


def split(data, sbp="(S0)", **kwargs):
    return flow.tensor(data, placement=flow.placement("cpu", [0, 1]), sbp=parse(sbp), **kwargs)


@pytest.mark.parametrize("sbp", ["(S0)", "(S1)", "(B)", "(P)"])
def test_reading_gives_the_logical_value(sbp, world):
    data = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]
    x = split(data, sbp, requires_grad=True)
    assert x.numpy().tolist() == x.tolist() == data
    assert x.to_torch().tolist() == data and np.asarray(x.detach()).tolist() == data
    assert np.asarray(x.detach(), dtype=np.int32).dtype == np.int32
    assert x[2, 1].item() == float(x[2, 1]) == 8.0
    assert int(x[2, 1]) == 8 and bool(x[2, 1]) is True


def test_one_element_only(world):
    assert split([[5]]).item() == 5 and [10, 20, 30][flow.tensor(2)] == 30
    with pytest.raises(OnefoldValueError, match=r"item.. needs a tensor with one element"):
        split([1, 2]).item()
    with pytest.raises(
        OnefoldRuntimeError, match="Boolean value of Tensor with more than one value"
    ):
        bool(split([1, 2]))
    with pytest.raises(OnefoldRuntimeError, match="Boolean value of Tensor with no values"):
        bool(flow.zeros(0))
    with pytest.raises(OnefoldTypeError, match="only integer tensors of a single element"):
        range(flow.tensor(1.5))
    with pytest.raises(OnefoldTypeError, match=r"len\(\) of a 0-d tensor"):
        len(flow.tensor(1))


PRINTED = [
    (lambda: flow.tensor([1.0, 2.5]), "tensor([1.0000, 2.5000])"),
    (lambda: flow.tensor(3), "tensor(3)"),
    (lambda: flow.tensor([], dtype=flow.int32), "tensor([], dtype=torch.int32)"),
    (lambda: flow.zeros(0, 3), "tensor([], size=(0, 3))"),
    (lambda: flow.tensor([1.0], requires_grad=True), "tensor([1.], requires_grad=True)"),
    (lambda: flow.tensor([2.0], requires_grad=True) * 2, "tensor([4.], grad_fn=<mul backward>)"),
    (lambda: split([1, 2, 3]), f"tensor([1, 2, 3], {PLACE}, sbp=(onefold.sbp.split(dim=0),))"),
    (
        lambda: split(3.0, "(P)", requires_grad=True),
        f"tensor(3., {PLACE}, sbp=(onefold.sbp.partial_sum,), requires_grad=True)",
    ),
    (
        lambda: flow.nn.Parameter(flow.ones(2)),
        "Parameter containing:\ntensor([1., 1.], requires_grad=True)",
    ),
    (
        lambda: split(np.zeros((0, 2))),
        f"tensor([], size=(0, 2), dtype=torch.float64, {PLACE}, sbp=(onefold.sbp.split(dim=0),))",
    ),
]


@pytest.mark.parametrize("index", range(len(PRINTED)))
def test_printing(index, world):
    make, text = PRINTED[index]
    assert repr(make()) == str(make()) == text


def test_printing_is_torchs_for_values(world):
    value = torch.linspace(-1e6, 1e3, 3000).reshape(30, 100)
    assert repr(flow.tensor(value)) == repr(value)


# Shared memory: what the caller writes is seen; onefold itself never writes there.


def test_torch_shares_memory_with_local_tensors(world):
    t = torch.zeros(3)
    x = flow.from_torch(t)
    t[0] = 5
    assert x.tolist() == [5, 0, 0]
    x.add_(1)
    assert t.tolist() == [5, 0, 0] and x.tolist() == [6, 1, 1]
    u = x.to_torch()
    u[1] = 9
    assert x.tolist() == [6, 9, 1]
    x.mul_(2)
    assert u.tolist() == [6, 9, 1]


def test_numpy_shares_memory_with_local_tensors(world):
    a = np.zeros(3, dtype=np.float32)
    x = flow.from_numpy(a)
    a[0] = 5
    b = x.numpy()
    assert x.tolist() == [5, 0, 0] and b[0] == 5
    x.add_(1)
    assert a.tolist() == b.tolist() == [5, 0, 0]


def test_an_optimizer_leaves_what_was_read_alone(world):
    w = flow.nn.Parameter(flow.ones(3))
    before, copy = w.numpy(), w.to_torch()
    w.grad = flow.ones(3)
    flow.optim.SGD([w], lr=1.0).step()
    assert w.tolist() == [0, 0, 0] and before.tolist() == copy.tolist() == [1, 1, 1]


@pytest.mark.parametrize("sbp", ["(S0)", "(B)", "(P)"])
def test_values_of_global_tensors_are_copies(sbp, world):
    x = split([1.0, 2.0], sbp)
    x.numpy()[0] = 7
    x.to_torch()[0] = 7
    assert x.tolist() == [1, 2]


def test_dlpack(world):
    x = flow.tensor([1.0, 2.0])
    assert torch.from_dlpack(x).tolist() == np.from_dlpack(x).tolist() == [1, 2]
    assert torch.from_dlpack(flow.to_dlpack(x)).tolist() == [1, 2]
    a = np.arange(3)
    y = flow.from_dlpack(a)
    a[0] = 4
    assert y.tolist() == [4, 1, 2] and y.dtype == torch.int64
    assert torch.from_dlpack(split([1.0, 2.0, 3.0])).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.uint8,
        torch.int16,
        torch.int64,
        torch.float16,
        torch.float64,
        torch.complex64,
    ],
)
def test_every_dtype_makes_the_round_trip(dtype, world):
    t = torch.tensor([0, 1, 2]).to(dtype)
    x = flow.from_torch(t)
    assert x.dtype == dtype and torch.equal(x.to_torch(), t)
    assert torch.equal(flow.from_numpy(x.numpy()).to_torch(), t)


def test_bfloat16_has_no_numpy(world):
    x = flow.ones(2, dtype=flow.bfloat16)
    assert x.tolist() == [1.0, 1.0] and repr(x) == "tensor([1., 1.], dtype=torch.bfloat16)"
    with pytest.raises(OnefoldTypeError, match=r"cannot hold torch\.bfloat16"):
        x.numpy()


@pytest.mark.parametrize("deferred", ["conj", "neg", "slice"])
@pytest.mark.parametrize("enter", ["from_torch", "tensor", "as_tensor", "asarray"])
def test_what_torch_defers_is_done_where_tensors_enter(enter, deferred, world):
    """Kernels read memory, in which the sign of `z.conj().imag` is the other one."""
    z = torch.tensor([1 + 2j, 3 - 4j, -0.5j]).conj()
    value = {"conj": z, "neg": z.imag, "slice": z.imag[1:]}[deferred]
    assert value.is_conj() or value.is_neg()
    x = getattr(flow, enter)(value)
    (part,) = x.shards
    assert not part.is_conj() and not part.is_neg()
    raw = torch.view_as_real(part) if part.is_complex() else part  # an error where it is deferred
    wanted = value.resolve_conj().resolve_neg()
    assert torch.equal(raw, torch.view_as_real(wanted) if wanted.is_complex() else wanted)


def test_no_result_is_deferred():
    y = flow.fft.ihfft(flow.randn(6))  # torch's own is
    assert flow.view_as_real(y).shape == (4, 2)


def test_from_torch_takes_no_history(world):
    t = torch.ones(2, requires_grad=True) * 2
    x = flow.from_torch(t)
    assert not x.requires_grad and flow.from_torch(t, requires_grad=True).requires_grad
    for bad, function in (([1], flow.from_torch), (torch.ones(1), flow.from_numpy)):
        with pytest.raises(OnefoldTypeError, match="needs a"):
            function(bad)


def test_a_torch_function_finds_the_op_of_its_name(world):
    x = split([1.0, 4.0, 9.0])
    y = torch.sqrt(x)
    assert isinstance(y, flow.Tensor) and y.sbp == x.sbp and y.tolist() == [1, 2, 3]
    assert torch.special.expit(x).tolist() == torch.sigmoid(x).tolist()
    with pytest.raises(OnefoldTypeError, match="onefold has no op named"):
        torch.segment_reduce(x, "sum")


NUMBERS = [
    (torch.tensor(3.14159), ".3f"),
    (torch.tensor(3.14159), ""),
    (torch.tensor(1e-7, dtype=torch.float64), "10.2e"),
    (torch.tensor(42), "05d"),
    (torch.tensor(True), ""),
    (torch.tensor(1 + 2j), ".1f"),
]


@pytest.mark.parametrize("index", range(len(NUMBERS)))
@pytest.mark.parametrize("layout", ["local", "broadcast", "partial"])
def test_a_0d_tensor_is_formatted_as_its_number(layout, index, world):
    number, spec = NUMBERS[index]
    x = flow.tensor(number)
    if layout != "local" and number.dtype != torch.bool:
        x = split(number, "(B)")
        x = x if layout == "broadcast" else x.to_global(sbp=flow.sbp.partial_sum)
    assert format(x, spec) == format(number, spec)
    if x.is_floating_point():
        assert format((x.requires_grad_() * 1), spec) == format(number, spec)


def test_other_tensors_are_formatted_as_str(world):
    for x in (flow.ones(1), split(np.zeros((4, 3))), flow.nn.Parameter(flow.tensor(1.5))):
        assert f"{x}" == str(x) and f"{x!r:>3}" == repr(x)
    assert f"{flow.nn.Parameter(flow.tensor(1.5)):.2f}" == "1.50"
    for x in (flow.ones(1), split(np.zeros((4, 3)))):
        with pytest.raises(OnefoldTypeError, match=r"unsupported format string '\.2f'"):
            f"{x:.2f}"


def test_a_captured_loss_is_formatted_when_it_is_there(world):
    class Step(flow.nn.Graph):
        def build(self, x):
            said.append(f"{x.sum()}")
            if spec:
                format(x.sum(), spec)
            return x.sum()

    said, spec = [], ""
    assert f"{Step()(flow.ones(2)):.1f}" == "2.0" and "captured" in said[0]
    spec = ".1f"
    with pytest.raises(OnefoldRuntimeError, match="values exist only when the graph runs"):
        Step()(flow.ones(2))


@pytest.mark.parametrize("dim", [5, 2, -3])
@pytest.mark.parametrize("shape", [(4, 3), ()])
def test_a_size_of_no_dim_is_torchs_error(shape, dim, world):
    with pytest.raises(IndexError) as torchs:
        torch.ones(shape).size(dim)
    for x in (flow.ones(shape), split(np.zeros((4, 3)))):
        if x.shape == shape:
            with pytest.raises(flow.OnefoldError) as ours:
                x.size(dim)
            assert isinstance(ours.value, IndexError) and str(ours.value) == f"size: {torchs.value}"


def test_a_size_takes_what_is_an_int(world):
    x = flow.ones(4, 3)
    assert x.size(np.int64(1)) == x.size(flow.tensor(1)) == 3 and x.size(dim=-2) == 4
    for bad in ("a", 1.0, slice(1)):
        with pytest.raises(OnefoldTypeError, match="dim must be an int"):
            x.size(bad)


def test_sizes_and_kinds(world):
    x = split(np.zeros((4, 3)))
    assert x.shape == x.size() == torch.Size([4, 3]) and x.size(-1) == 3
    assert (x.ndim, x.dim(), x.numel(), x.nelement(), len(x)) == (2, 2, 12, 12, 4)
    assert x.element_size() == 8 and x.is_floating_point() and not x.is_complex()
    assert x.is_global and not x.is_local and not x.is_cuda and not x.is_sparse
    assert flow.ones(2).device == torch.device("cpu")
    assert [row.tolist() for row in flow.tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
