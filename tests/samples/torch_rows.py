"""Samples of rows of torch_table that torch's operator database lacks."""

import torch
from torch.nn import functional
from torch_oracle import differentiates

from onefold.testing import I, Sample, T

PLANES = T(4, 3, 8, 7)
CUBES = T(3, 2, 5, 4, 6)

# Torch lacked the gradient of this gradient.
GRIDS_TWICE = differentiates(
    lambda x, grid: torch.grid_sampler(x, grid, 0, 0, False), (1, 1, 2, 2), (1, 2, 2, 2), twice=True
)

BAGS = torch.tensor([1, 2, 0, 5, 4, 3])


SAMPLES = [
    Sample("det", (T(3, 4, 4),)),
    Sample("slogdet", (T(3, 4, 4),)),
    Sample("inverse", (T(3, 4, 4),), tol=1e-8),
    Sample("orgqr", (T(2, 4, 3), T(2, 3))),
    Sample("vander", (T(4), 3, True), grad=False),
    Sample("grid_sampler", (PLANES, T(4, 5, 6, 2), 0, 0, False), grad=GRIDS_TWICE),
    Sample("affine_grid", (T(3, 2, 3), (3, 1, 4, 5)), {"align_corners": False},
           torch=functional.affine_grid),
    Sample("native_group_norm", (T(2, 4, 3), T(4), T(4), 2, 4, 3, 2, 1e-5),
           torch=torch.native_group_norm),
    Sample("native_channel_shuffle", (T(3, 4, 2), 2), torch=torch.channel_shuffle),
    Sample("_embedding_bag", (T(6, 4), BAGS, torch.tensor([0, 2, 2, 4]), False, 1),
           torch=torch.embedding_bag, grad=False),
    Sample("conv_tbc", (T(6, 3, 4), T(2, 4, 5), T(5)), torch=torch.conv_tbc),
    Sample("fractional_max_pool2d", (PLANES, 2, 3),
           {"_random_samples": T(4, 3, 2, low=0.1, high=0.9)}, grad=False,
           torch=functional.fractional_max_pool2d),
    Sample("fractional_max_pool3d", (CUBES, 2, 2),
           {"_random_samples": T(3, 2, 3, low=0.1, high=0.9)}, grad=False,
           torch=functional.fractional_max_pool3d),
    *[
        Sample("unique_consecutive", (I(9, high=1),), flags, grad=False)
        for flags in (
            {},
            {"return_counts": True},
            {"return_inverse": True},
            {"return_inverse": True, "return_counts": True},
        )
    ],
    Sample("cov", (T(3, 6),), {"fweights": torch.tensor([1, 2, 1, 1, 3, 1])}),
    Sample("cov", (I(3, 6),), grad=False),
    Sample("fake_quantize_per_tensor_affine", (T(6, 4), 0.1, 3, -8, 7), grad=False),
    Sample("fake_quantize_per_channel_affine",
           (T(6, 4), torch.full((4,), 0.1), torch.arange(4, dtype=torch.int32), 1, -8, 7),
           grad=False, tol=1e-5),
    Sample("linalg.vecdot", (T(2, 3, 4), T(3, 4)), {"dim": 0}, torch=torch.linalg.vecdot),
    Sample("trapezoid", (T(3, 5), T(5)), {"dim": 1}),
    Sample("_standard_gamma_grad", (T(6, 4, low=0.5, high=3), T(6, 4, low=0.2, high=4)),
           torch=torch._standard_gamma_grad, grad=False),
    Sample("_dirichlet_grad",
           (T(6, 4, low=0.1, high=0.9), T(6, 4, low=0.5, high=3), T(6, 4, low=3, high=5)),
           torch=torch._dirichlet_grad, grad=False),
    Sample("special.i0e", (T(2, 2, 2, 1, 2, 2, 2, 2),), torch=torch.special.i0e),
    Sample("rrelu", (T(6, 4),), torch=functional.rrelu),
    Sample("rrelu", (T(6, 4), 0.25, 0.25, True), torch=functional.rrelu),
    Sample("adaptive_max_pool1d_with_indices", (T(4, 3, 9), 4), grad=False,
           torch=functional.adaptive_max_pool1d_with_indices),
    Sample("adaptive_max_pool2d_with_indices", (PLANES, 3), grad=False,
           torch=functional.adaptive_max_pool2d_with_indices),
    Sample("adaptive_max_pool3d_with_indices", (CUBES, 2), grad=False,
           torch=functional.adaptive_max_pool3d_with_indices),
    Sample("fractional_max_pool2d_with_indices", (PLANES, 2, 3),
           {"_random_samples": T(4, 3, 2, low=0.1, high=0.9)}, grad=False,
           torch=functional.fractional_max_pool2d_with_indices),
    Sample("fractional_max_pool3d_with_indices", (CUBES, 2, 2),
           {"_random_samples": T(3, 2, 3, low=0.1, high=0.9)}, grad=False,
           torch=functional.fractional_max_pool3d_with_indices),
    Sample("max_pool1d_with_indices", (T(4, 3, 9), 2), grad=False,
           torch=functional.max_pool1d_with_indices),
    Sample("max_pool2d_with_indices", (PLANES, 2), grad=False,
           torch=functional.max_pool2d_with_indices),
    Sample("max_pool3d_with_indices", (CUBES, 2), grad=False,
           torch=functional.max_pool3d_with_indices),
    Sample("view_as_real", (T(6, 4, dtype=torch.complex128),)),
    Sample("view_as_complex", (T(6, 4, 2),)),
    Sample("cartesian_prod", (T(6),)),
    Sample("linalg.diagonal", (T(6, 4, 5),), torch=torch.linalg.diagonal),
    Sample("unsafe_split_with_sizes", (T(6, 4), [2, 4]), torch=torch.unsafe_split_with_sizes),
]  # fmt: skip
