"""What the tuner times is the kernel: with any configuration it gives the rule's result."""

import pytest

from onefold.kernels.gpu import product
from onefold.kernels.tune.search import search


@pytest.mark.parametrize("dtype", product.TUNED[0].dtypes, ids=str)
def test_products(dtype):
    [tuned] = product.TUNED
    sizes = (40, 36, 48)
    rule, *others = tuned.allowed(dtype, sizes)
    some = [rule, *others[:: max(1, len(others) // 3)]]
    small = type(tuned)("matmul", (dtype,), {"tiny": sizes}, lambda *_: some, tuned.call, None)
    seconds = iter(range(10, 0, -1))
    found = search(small, dtype, "tiny", lambda call: next(seconds))
    assert len(found.tried) == len(some)
    assert found.config == some[-1]
