"""Update rules give the same bits whether the host passes a number or it is in memory."""

import inspect

import pytest
import torch

from onefold.kernels import adaptive_rules, update_rules

RULES = [
    value
    for module in (update_rules, adaptive_rules)
    for value in vars(module).values()
    if inspect.isfunction(value) and value.__module__ == module.__name__
]


def arguments(rule):
    """Tensors, flags and numbers that float32 has exactly."""
    parameters = inspect.signature(rule).parameters.values()
    tensors = [torch.rand(4096) + 0.1 for each in parameters if each.kind is not each.KEYWORD_ONLY]
    named = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    flags = {each.name: True for each in named if each.annotation == "bool"}
    names = [each.name for each in named if each.name not in flags]
    return (
        tensors,
        flags,
        dict(zip(names, (0.1 + 0.8 * torch.rand(len(names))).tolist(), strict=True)),
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_numbers_in_memory_give_the_same_bits(rule):
    torch.manual_seed(0)
    tensors, flags, numbers = arguments(rule)
    held = {name: torch.tensor(number) for name, number in numbers.items()}
    for found, wanted in zip(
        rule(*tensors, **flags, **held), rule(*tensors, **flags, **numbers), strict=True
    ):
        assert (found is None) == (wanted is None)
        if found is not None:
            torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
