"""fold: windows that overlap, lie apart, or are one element, in every dtype and layout."""

import pytest
import torch
from triton_harness import assert_matches_reference

from onefold.kernels import fold_ref
from onefold.kernels.gpu.gather import fold_kernels

# (size, kernel, dilation, padding, stride)
FORMS = [
    ((5, 6), (3, 3), (1, 1), (1, 1), (1, 1)),
    ((8, 8), (4, 4), (1, 1), (0, 0), (4, 4)),
    ((9, 7), (2, 3), (2, 1), (1, 2), (3, 1)),
    ((6, 5), (1, 1), (1, 1), (0, 0), (1, 1)),
    ((7, 8), (2, 2), (1, 3), (0, 1), (4, 3)),
    ((40, 33), (3, 3), (1, 1), (1, 1), (1, 1)),
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", FORMS)
def test_fold(form, dtype):
    count = torch.tensor(fold_kernels.windows(*form)).prod()
    area = form[1][0] * form[1][1]
    x = torch.randn(2, 3 * area, count, dtype=torch.float64).to(dtype)
    assert_matches_reference(fold_ref.fold, x, *form)
    assert_matches_reference(fold_ref.fold, x.mT.contiguous().mT, *form)
    assert_matches_reference(fold_ref.fold, x[0], *form)
    assert_matches_reference(fold_ref.fold, x[:0], *form)
