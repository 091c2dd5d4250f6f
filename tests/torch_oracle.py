"""The torch that tests compare with: that of constraints.txt. Others lack some of what it has."""

import inspect
import re

import pytest
import torch
from source_tree import REPO

NAMED = re.search(r"^torch==(\d+\.\d+)", (REPO / "constraints.txt").read_text(), re.MULTILINE)[1]

IS_NAMED = torch.__version__.startswith(f"{NAMED}.")

needs_this_torch = pytest.mark.skipif(
    not IS_NAMED,
    reason=f"compares with torch {NAMED}, and this is torch {torch.__version__}",
)

# Parameters that torch has from 2.13 on: `bias` of norms without a bias.
NORMS_HAVE_BIAS = "bias" in inspect.signature(torch.nn.GroupNorm).parameters
NEW_PARAMETERS = frozenset() if NORMS_HAVE_BIAS else frozenset({"bias"})

SCALED_MM_BY_RECIPES = torch._C._dispatch_has_kernel_for_dispatch_key("aten::_scaled_mm_v2", "CPU")


def is_new(parameter: str, theirs) -> bool:
    """Whether newer versions have a parameter that is not among those of this version."""
    return parameter in NEW_PARAMETERS and parameter not in theirs


def differentiates(function, *shapes, twice=False):
    """Whether torch has the gradient of a function of tensors, or that of its gradient."""
    inputs = [torch.rand(shape, requires_grad=True) for shape in shapes]
    try:
        result = function(*inputs)
        results = [result] if isinstance(result, torch.Tensor) else result
        total = sum(each.sum() for each in results)
        grads = torch.autograd.grad(total, inputs, create_graph=twice)
        if twice:
            torch.autograd.grad(sum(each.sum() for each in grads), inputs, allow_unused=True)
    except RuntimeError as error:
        if "is not implemented" not in str(error):
            raise
        return False
    return True
