"""What kernels and their loops contain, found in Triton's IR."""

import pytest
import torch

from onefold.kernels.aot.compile_kernel import GPUS, all_cases, source_of
from onefold.kernels.gpu.pointwise.pointwise_kernels import _case, single
from onefold.kernels.gpu.pointwise.strided_layout import Pattern
from onefold.testing.gpu_driver.lowering import lower
from onefold.testing.gpu_driver.triton_ir import read

TARGET = "sm_90"
DIVISIONS = {f"arith.{name}" for name in ("divsi", "divui", "remsi", "remui")}
CASES = {
    key: case
    for key, case in all_cases().items()
    if key.startswith(("conv_kernels.", "conv_weight_grad.", "pool_kernels.", "lp_pool_kernels."))
}
WITHOUT_DIVISIONS = ("_join(", "_take(", "_put(")


def divisions(operations, loops=0):
    """The bits of divisions in loops."""
    for operation in operations:
        if loops and operation.name in DIVISIONS:
            yield operation.bits
        yield from divisions(operation.body, loops + (operation.name == "scf.for"))


@pytest.mark.parametrize("key", CASES)
def test_convolutions_and_pools_divide_no_64_bits_in_their_loops(key):
    case = CASES[key]
    options = {"num_warps": case.warps, "num_stages": case.stages}
    found = set(divisions(read(lower(source_of(case, TARGET), GPUS[TARGET], options))))
    assert found == (set() if any(name in key for name in WITHOUT_DIVISIONS) else {32})


def test_exp_is_as_exact_as_torchs():
    x = torch.empty(0)
    case = _case(single("exp", (x,), x.dtype), Pattern(0, 0, ((1,), (1,))), (1, 1024), "i32")
    text = lower(source_of(case, TARGET), GPUS[TARGET], {"num_warps": case.warps})
    assert "__nv_expf" in text and "math.exp" not in text
