"""Decompositions of low rank: exact where the matrices have that rank, as torch's are."""

import numpy as np
import pytest
import torch

import onefold as flow

ROWS = torch.randn(12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
MATRIX = ROWS @ torch.tensor([[1.0, 2, 0, 1, 3], [0, 1, 1, 4, 0], [2, 0, 1, 0, 1]]).double() + 1.0


@pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")  # qr gathers the basis
@pytest.mark.parametrize("layout", [None, "(S0)", "(B)"])
@pytest.mark.parametrize("wide", [False, True])
def test_the_components_are_those_of_the_whole_decomposition(world, layout, wide):
    matrix = MATRIX.T.contiguous() if wide else MATRIX
    x = flow.from_torch(matrix)
    if layout is not None:
        p = flow.placement("cpu", ranks=[0, 1])
        sbp = flow.sbp.split(0) if layout == "(S0)" else flow.sbp.broadcast
        x = x.to_global(p, flow.sbp.broadcast).to_global(sbp=sbp)
    centered = matrix - matrix.mean(-2, keepdim=True)
    for (u, s, v), wanted in (
        (flow.pca_lowrank(x, q=4), centered),
        (flow.svd_lowrank(x, q=4, niter=1), matrix),
        (torch.pca_lowrank(x), centered),
    ):
        values = torch.linalg.svdvals(wanted)[: s.shape[0]]
        np.testing.assert_allclose(s.numpy(), values.numpy(), atol=1e-10)
        np.testing.assert_allclose(((u * s) @ v.mT).numpy(), wanted.numpy(), atol=1e-10)


def test_a_rank_that_is_too_high_is_an_error(world):
    with pytest.raises(ValueError, match="pca_lowrank: q must be between 0 and 3"):
        flow.pca_lowrank(flow.ones(5, 3), q=4)
    with pytest.raises(ValueError, match="svd_lowrank: niter must not be negative"):
        flow.svd_lowrank(flow.ones(5, 3), 2, -1)


def test_fake_quantization_has_the_gradient_of_torch(world):
    scale, zero = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2], dtype=torch.int32)
    for name, args in (
        ("fake_quantize_per_tensor_affine", (0.1, 3, 0, 15)),
        ("fake_quantize_per_tensor_affine", (scale[0], zero[1], 0, 15)),
        ("fake_quantize_per_channel_affine", (scale, zero, 1, -8, 7)),
    ):
        x = torch.linspace(-2, 2, 12).reshape(4, 3).requires_grad_()
        y = getattr(torch, name)(x, *args)
        (y * y).sum().backward()
        given = [flow.from_torch(each) if isinstance(each, torch.Tensor) else each for each in args]
        mine = flow.from_torch(x.detach().clone()).requires_grad_()
        z = getattr(flow, name)(mine, *given)
        (z * z).sum().backward()
        np.testing.assert_array_equal(z.detach().numpy(), y.detach().numpy())
        np.testing.assert_array_equal(mine.grad.numpy(), x.grad.numpy())
