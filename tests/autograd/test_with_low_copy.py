"""Casts that the kernel before them writes: of norms, of gradients that are added, of products."""

from unittest import mock

import pytest
import torch
from hypothesis import given, strategies as st

import onefold as flow
from onefold import nn
from onefold.engine import interpreter, parameter_casts
from onefold.engine.ops import cast as casts
from onefold.engine.ops.arithmetic import ADD

LOW, WIDE = torch.bfloat16, torch.float32
NORMS = {
    "layer_norm": lambda: nn.LayerNorm(6),
    "layer_norm of two dims": lambda: nn.LayerNorm((3, 6)),
    "layer_norm without a bias": lambda: nn.LayerNorm(6, bias=False),
    "layer_norm without a weight": lambda: nn.LayerNorm(6, elementwise_affine=False),
    "rms_norm": lambda: nn.RMSNorm(6),
    "rms_norm without a weight": lambda: nn.RMSNorm(6, elementwise_affine=False),
}


class Casts:
    """The shapes of the tensors that are cast in a block, and the dtypes that they become."""

    def __init__(self, low_copies=True):
        self.made = []
        self.patches = (
            mock.patch.object(parameter_casts, "uses_triton", return_value=low_copies),
            mock.patch.object(casts, "_cast", self.cast),
        )
        self.original = casts._cast

    def cast(self, x, dtype):
        self.made.append((tuple(x.shape), dtype))
        return self.original(x, dtype)

    def __enter__(self):
        for patch in self.patches:
            patch.start()
        return self

    def __exit__(self, *exc):
        for patch in self.patches:
            patch.stop()

    def of(self, *shape):
        return [dtype for of, dtype in self.made if of == shape]


class Block(nn.Module):
    """Branches of a norm and products, which are added to what they start from."""

    def __init__(self, norm, products=1):
        super().__init__()
        self.norm = norm
        self.products = nn.ModuleList(nn.Linear(6, 6) for _ in range(products))

    def forward(self, x):
        y = self.norm(x)
        for product in self.products:
            x = x + product(y)
        return x


def trained(blocks, x):
    """What a step gives: the output, and the gradients of all parameters and of x."""
    with flow.autocast("cpu", LOW):
        y = x
        for block in blocks:
            y = block(y)
    (y * y).sum().backward()
    params = [param for block in blocks for param in block.parameters()]
    found = [y.tolist(), x.grad.tolist(), *(param.grad.tolist() for param in params)]
    for tensor in (x, *params):
        tensor.grad = None
    return found


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("products", [1, 3])
def test_bits_are_those_of_casts(norm, products):
    flow.manual_seed(0)
    blocks = [Block(NORMS[norm](), products) for _ in range(3)]
    x = flow.randn(2, 3, 6, requires_grad=True)
    with Casts(low_copies=False) as before:
        wanted = trained(blocks, x)
    with Casts() as after:
        assert trained(blocks, x) == wanted
    assert before.of(2, 3, 6) == [LOW] * len(blocks) and after.of(2, 3, 6) == []


def test_gradients_that_meet_in_a_sum_are_added_and_cast_at_once():
    blocks = [Block(nn.RMSNorm(6)) for _ in range(4)]
    entry, found = ADD.with_low_copy, []

    def add_and_low_copy(a, b, dtype):
        found.append(dtype)
        return entry(a, b, dtype)

    with mock.patch.object(ADD, "with_low_copy", add_and_low_copy):
        trained(blocks, flow.randn(2, 6, requires_grad=True))
    assert found == [LOW] * 4


@given(
    st.lists(st.sampled_from([torch.float16, LOW, WIDE]), min_size=2, max_size=5),
    st.integers(0, 3),
)
def test_sums_of_any_dtypes_have_the_gradients_of_torch(dtypes, seed):
    """Terms of several dtypes, of which each is used again."""
    torch.manual_seed(seed)
    data = [torch.randn(2, 3).to(dtype) for dtype in dtypes]

    def gradients(library, tensors):
        total = tensors[0]
        for term in tensors[1:]:
            total = (total * 2 + term) + total
        (total * total).sum().backward()
        return [(tensor.grad.dtype, tensor.grad.tolist()) for tensor in tensors]

    wanted = gradients(torch, [x.clone().requires_grad_() for x in data])
    assert gradients(flow, [flow.tensor(x, requires_grad=True) for x in data]) == wanted


def test_nothing_is_kept_where_it_would_not_be_used():
    norm, product = nn.LayerNorm(6), nn.Linear(6, 6)
    x = flow.randn(2, 6)
    for settings in ({"enabled": False}, {"cache_enabled": False}):
        with Casts(), flow.autocast("cpu", LOW, **settings):
            assert not hasattr(norm(x), "_low_copy")
    with Casts(low_copies=False), flow.autocast("cpu", LOW):
        assert not hasattr(norm(x), "_low_copy")
    with Casts(), flow.autocast("cpu", LOW):
        assert not hasattr(flow.rms_norm(x.double(), (6,)), "_low_copy")
        y = norm(x)
        assert y.dtype == WIDE and y._low_copy[0].dtype == LOW and product(y).dtype == LOW


def test_an_observer_sees_each_cast():
    names = []

    class Ops(interpreter.Through):
        def run(self, call, op, args):
            names.append(op.name)
            return super().run(call, op, args)

    norm, product = nn.LayerNorm(6), nn.Linear(6, 6, bias=False)
    with Casts(), interpreter.using(Ops(None)), flow.autocast("cpu", LOW):
        product(norm(flow.randn(2, 6)))
    assert names.count("cast") == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda y: y.add_(1),
        lambda y: y[0].add_(1),
        lambda y: setattr(y, "data", y.data + 1),
    ],
    ids=["in place", "of a view", "of data"],
)
def test_a_changed_result_is_cast_again(change):
    norm, product = nn.RMSNorm(6), nn.Linear(6, 6)
    with Casts(), flow.no_grad(), flow.autocast("cpu", LOW):
        y = norm(flow.randn(2, 6))
        before = product(y).tolist()
        change(y)
        after = product(y).tolist()
        assert after[0] != before[0] and after == product(y.clone()).tolist()


def test_what_is_written_to_a_cast_stays_there():
    with Casts(), flow.no_grad(), flow.autocast("cpu", LOW):
        y = nn.RMSNorm(6)(flow.randn(2, 6))
        wanted = flow.mm(y, flow.eye(6)).tolist()
        cast = y.to(LOW)
        cast.zero_()
        assert flow.mm(y, flow.eye(6)).tolist() == wanted


def test_second_gradients_are_those_of_casts():
    flow.manual_seed(0)
    block, x = Block(nn.LayerNorm(6), 2), flow.randn(2, 6, requires_grad=True)
    found = []
    for low_copies in (True, False):
        with Casts(low_copies), flow.autocast("cpu", LOW):
            y = block(x)
        (dx,) = flow.autograd.grad((y * y).sum(), [x], create_graph=True)
        (dx * dx).sum().backward()
        found.append([dx.tolist(), x.grad.tolist(), block.norm.weight.grad.tolist()])
        x.grad = None
        block.zero_grad()
    assert found[0] == found[1]


@pytest.mark.parametrize("sbp", [flow.sbp.split(0), flow.sbp.split(1), flow.sbp.broadcast])
@pytest.mark.parametrize("norm", [norm for norm in NORMS if "two dims" not in norm])
def test_layouts(world, norm, sbp):
    flow.manual_seed(0)
    block, x = Block(NORMS[norm]()), flow.randn(4, 6)
    wanted = trained([block], x.clone().requires_grad_())
    on = flow.placement("cpu", range(2))
    block.to_global(placement=on, sbp=flow.sbp.broadcast)
    with Casts():
        x = x.to_global(placement=on, sbp=flow.sbp.broadcast).to_global(placement=on, sbp=sbp)
        found = trained([block], x.requires_grad_())
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.tensor(one), torch.tensor(other), rtol=2e-2, atol=2e-2)
