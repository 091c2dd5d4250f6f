"""The kernels that are made of optimizers' rules, against torch link by link."""

import pytest
import torch
from triton_updates import lists

from onefold.kernels.pointwise_chain_ref import several
from onefold.kernels.select import triton_kernel
from onefold.kernels.update_chain import chain_of
from onefold.optim import elementwise_rules


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", elementwise_rules.__all__)
def test_a_rule_as_one_kernel(name, dtype):
    cls = getattr(elementwise_rules, name)
    numbers = {"lr": 0.1, **cls.options, "weight_decay": 0.1}
    chain = chain_of(cls._decayed, 2 + len(cls.states), tuple(numbers))
    given = [torch.tensor(x, dtype=dtype) for x in numbers.values()]
    for row in zip(*lists(2 + len(cls.states), dtype), strict=True):
        tensors = [x if i < 2 else x.abs() for i, x in enumerate(row)]
        wanted = several(chain)(*tensors, *given)
        found = triton_kernel(several)(chain)(*tensors, *given)
        for mine, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(mine, right)
