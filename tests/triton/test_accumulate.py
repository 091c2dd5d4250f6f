"""Sums of products: each product is added to the sum in its memory, and is not rounded before."""

from unittest import mock

import pytest
import torch
from device_checks import DEVICE

import onefold as flow
from onefold import nn
from onefold.distributed.world import virtual_world
from onefold.engine import dispatch_plan
from onefold.graph.passes.accumulate_products import PRODUCTS, Accumulate
from onefold.kernels import accumulate_ref, matmul_ref
from onefold.kernels.gpu.matmul import (
    accumulate_kernels as gpu,
    gemm,
    gemm_operands,
    gemm_tma,
)
from onefold.kernels.gpu.matmul.gemm_config import Tile

OPERANDS = {
    matmul_ref.mm: ((9, 20), (20, 6)),
    matmul_ref.mm_nt: ((9, 20), (6, 20)),
    matmul_ref.mm_tn: ((20, 9), (20, 6)),
    matmul_ref.rows_tn: ((4, 5, 9), (4, 5, 6)),
}
# Of the operands and of the sum.
DTYPES = [
    (torch.float32, torch.float32),
    (torch.float64, torch.float64),
    (torch.bfloat16, torch.float32),
    (torch.float16, torch.float32),
    (torch.bfloat16, torch.bfloat16),
]


def check(product, shapes, dtype, sums, count=3):
    """The sum of some products, against that of torch in float64."""
    pairs = [[torch.randn(shape).to(dtype) for shape in shapes] for _ in range(count)]
    add = gpu.accumulate(product, sums)
    total = add(*pairs[0])
    assert total.dtype is sums and total.is_contiguous()
    memory = total.data_ptr()
    for a, b in pairs[1:]:
        assert add(a, b, total) is total
    assert total.data_ptr() == memory
    wanted = sum(product(a.double(), b.double()) for a, b in pairs)
    half = sums.itemsize == 2
    torch.testing.assert_close(
        total.double(), wanted, rtol=2e-2 if half else 1e-5, atol=5e-2 if half else 1e-4
    )
    return total


@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.__name__)
def test_products(product, dtypes):
    check(product, OPERANDS[product], *dtypes)


def test_a_sum_in_parts():
    check(matmul_ref.mm_tn, ((1500, 5), (1500, 6)), torch.bfloat16, torch.float32)


def test_tiles_of_several_programs():
    check(matmul_ref.mm_tn, ((40, 150), (40, 140)), torch.bfloat16, torch.float32, 2)


def test_parts_of_a_tile_by_descriptors():
    a, b = (torch.randn(24, size).to(torch.bfloat16) for size in (40, 136))
    total = torch.randn(40, 136)
    wanted = total.double() + a.double().t() @ b.double()
    end, tile = gemm.Epilogue(x=total), Tile(16, 64, 16, 4, 2)
    p = gemm_operands.pair(a.t(), b)
    gemm_tma.run(p, total, end.args(136), end.form, "half", tile, 4)
    torch.testing.assert_close(total.double(), wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("k", "suits"), [(1032, True), (1028, False)])
def test_descriptors_need_aligned_rows_of_each_operand(k, suits, monkeypatch):
    """The rows of a float32 sum are aligned where those of bfloat16 operands are not."""
    monkeypatch.setattr(gemm_tma, "INTERPRETED", False)
    monkeypatch.setattr(gemm_tma, "processors", lambda device: 132)
    a, b = (torch.empty(2048, k, dtype=torch.bfloat16) for _ in "ab")
    p = gemm_operands.pair(a, b.t())
    y = torch.empty(2048, 2048)
    assert gemm_tma.suit(p, y, "half", Tile(128, 256, 64, 8, 3)) is suits


@pytest.mark.parametrize(("major", "found"), [(8, 0), (9, 132), (10, 132), (12, 0)])
def test_descriptors_are_for_gpus_with_room_for_tiles(major, found, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (major, 0))
    properties = mock.Mock(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert gemm_tma.processors.__wrapped__(0) == found


@pytest.mark.parametrize("shape", [(1, 1024), (2048, 1024), (2048, 0)], ids=str)
def test_descriptors_have_no_expanded_or_empty_dims(shape, monkeypatch):
    monkeypatch.setattr(gemm_tma, "INTERPRETED", False)
    monkeypatch.setattr(gemm_tma, "processors", lambda device: 132)
    a, b = (torch.empty(2048, 1024, dtype=torch.bfloat16)[:, : shape[1]] for _ in "ab")
    y = torch.empty(2048, 2048)
    for left, right in ((a[: shape[0]].expand(2048, -1), b), (a, b[: shape[0]].expand(2048, -1))):
        p = gemm_operands.pair(left, right.t())
        suits = gemm_tma.suit(p, y, "half", Tile(64, 64, 64, 4, 3))
        assert suits is (shape == (2048, 1024))


def test_no_elements():
    assert check(matmul_ref.mm, ((0, 20), (20, 6)), torch.float32, torch.float32).shape == (0, 6)
    assert not check(matmul_ref.mm, ((3, 0), (0, 6)), torch.float32, torch.float32).any()


def test_the_reference_adds_in_place():
    add = accumulate_ref.accumulate(matmul_ref.mm, torch.float32)
    a = torch.ones(2, 2, dtype=torch.bfloat16)
    total = add(a, a)
    assert total.dtype is torch.float32
    assert add(a, a, total) is total and (total == 4).all()


class Net(nn.Module):
    """Layers, of which one is used twice."""

    def __init__(self):
        super().__init__()
        self.first, self.twice = nn.Linear(6, 8), nn.Linear(8, 8)
        self.last = nn.Linear(8, 4)

    def parts(self):
        return (self.first, self.twice), (self.last,)

    def forward(self, x):
        return self.last(self.twice(flow.gelu(self.twice(self.first(x)))))


class Step(nn.Graph):
    def __init__(self, model, dtype, stages=()):
        super().__init__()
        for stage, (parts, p) in enumerate(zip(model.parts(), stages, strict=False)):
            for part in parts:
                part.to_global(p, flow.sbp.broadcast)
                part.to(nn.graph.GraphModule).set_stage(stage, p)
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.5, momentum=0.9))
        self.config.set_gradient_accumulation_steps(3)
        self.config.enable_amp(dtype is not None, dtype=dtype or flow.bfloat16)

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


def trained(dtype, stages=()):
    """The losses and weights of a few steps, and the number of products that add to sums."""
    dispatch_plan.clear_plans()  # which have kernels
    flow.manual_seed(0)
    graph = Step(Net().to(DEVICE), dtype, stages)
    x = flow.randn(12, 6).to(DEVICE)
    if stages:
        x = x.to_global(stages[0], flow.sbp.broadcast)
    losses = [graph(x).tolist() for _ in range(3)]
    count = sum(isinstance(step.op, Accumulate) for step in graph.program.steps)
    return losses, [p.tolist() for p in graph.model.parameters()], count


def check_graph(monkeypatch, dtype, stages=()):
    """The number of products that add to sums, in a graph that does what torch's does."""
    losses, weights, count = trained(dtype, stages)
    monkeypatch.setenv("ONEFOLD_KERNELS", "torch")
    wanted_losses, wanted, none = trained(dtype, stages)
    dispatch_plan.clear_plans()
    assert none == 0
    close = {"rtol": 1e-5, "atol": 1e-6} if dtype is None else {"rtol": 2e-2, "atol": 2e-2}
    for found, expected in zip((losses, *weights), (wanted_losses, *wanted), strict=True):
        torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), **close)
    return count


@pytest.mark.parametrize("dtype", [None, flow.bfloat16], ids=str)
def test_a_graph_is_that_of_torch(dtype, monkeypatch):
    assert check_graph(monkeypatch, dtype) == 4 * 3


@pytest.mark.skipif(DEVICE == "cuda", reason="one process has one GPU")
@pytest.mark.parametrize("dtype", [None, flow.bfloat16], ids=str)
def test_stages(dtype, monkeypatch):
    stages = [flow.placement("cpu", [rank]) for rank in (0, 1)]
    with virtual_world():
        assert check_graph(monkeypatch, dtype, stages) == 4
