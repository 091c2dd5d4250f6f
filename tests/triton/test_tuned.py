"""What the tuner times is the kernel: with any configuration it gives the rule's result."""

import pytest

from onefold.kernels.gpu import attention_cases, product
from onefold.kernels.tune.search import search

SIZES = {
    **{tuned.kernel: (tuned, (40, 36, 48)) for tuned in product.TUNED},
    **{tuned.kernel: (tuned, (1, 2, 40, 16)) for tuned in attention_cases.TUNED},
}


@pytest.mark.parametrize("kernel", SIZES)
@pytest.mark.parametrize("index", [0, 1], ids=["bfloat16", "float32"])
def test_every_configuration(kernel, index):
    tuned, sizes = SIZES[kernel]
    dtype = tuned.dtypes[index]
    rule, *others = tuned.allowed(dtype, sizes)
    some = [rule, *others[:: max(1, len(others) // 3)]]
    small = type(tuned)(kernel, (dtype,), {"tiny": sizes}, lambda *_: some, tuned.call)
    seconds = iter(range(10, 0, -1))
    found = search(small, dtype, "tiny", lambda call: next(seconds))
    assert len(found.tried) == len(some)
    assert found.config == some[-1]
