"""What the tuner times is the kernel: with any configuration it gives the rule's result."""

from dataclasses import replace

import pytest
import torch

from onefold.kernels.gpu import attention_cases, configs, conv, loss, norm, reduce, softmax
from onefold.kernels.gpu.families import all_tuned
from onefold.kernels.tune.search import search

# Sizes small enough for the interpreter.
TINY = {
    "matmul": (40, 36, 48),
    "convolution": (1, 6, 32, 20),
    "convolution_weight_grad": (1, 6, 32, 40),
    **{tuned.kernel: (1, 2, 40, 16) for tuned in attention_cases.TUNED},
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("kernel", all_tuned())
def test_any_configuration_gives_the_result_of_the_rule(kernel, dtype):
    tuned = all_tuned()[kernel]
    sizes = TINY.get(kernel, (9, 70, 1))
    rule, *others = tuned.allowed(dtype, sizes)
    assert len(others) >= 3 and rule not in others
    some = [rule, *others[:: max(1, len(others) // 3)]]
    small = replace(tuned, shapes={"tiny": sizes}, allowed=lambda *_: some)
    seconds = iter(range(10, 0, -1))
    found = search(small, dtype, "tiny", lambda call: next(seconds))
    assert [reason for _, reason in found.tried if isinstance(reason, str)] == []
    assert found.config == some[-1]


def test_kernels_read_the_table_by_the_names_that_the_tuner_writes(monkeypatch):
    asked = []

    class Recording(dict):
        def get(self, name, default=None):
            asked.append(name)
            return default

    monkeypatch.setattr(configs, "_table", Recording)
    monkeypatch.setattr(configs, "architecture", lambda: "sm_90")
    x = torch.randn(13, 71)
    target = torch.arange(13)
    window = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    image, w = torch.randn(1, 16, 5, 5), torch.randn(19, 16, 3, 3)
    calls = {
        "fold": lambda: reduce.total(x, 1, False, None),
        "scan": lambda: reduce.cumsum(x, 1, False),
        "softmax": lambda: softmax.softmax(x, 1, None),
        "softmax_grad": lambda: softmax.softmax_grad(x, x, 1),
        "norm": lambda: norm.rms_norm(x, None, None, (71,), 1e-5),
        "norm_grad": lambda: norm.rms_norm_grad(x, x, None, (71,), 1e-5),
        "cross_entropy": lambda: loss.row_losses(x, target, -100),
        "cross_entropy_grad": lambda: loss.row_losses_and_grad(x, target, -100),
        "convolution": lambda: conv.convolution(image, w, None, *window),
        "convolution_weight_grad": lambda: conv.convolution_weight_grad(
            torch.randn(1, 19, 5, 5), image, (19, 16, 3, 3), *window
        ),
    }
    known = all_tuned()
    # Those of products and attention have their own tests.
    assert set(known) == {"matmul", *calls, *(tuned.kernel for tuned in attention_cases.TUNED)}
    classes = {"convolution": "32x32x16", "convolution_weight_grad": "32x16x32"}
    for kernel, call in calls.items():
        asked.clear()
        call()
        dtype = known[kernel].name(torch.float32)
        mine = [name for name in asked if name.startswith(f"{kernel} ")]
        assert mine == [configs.key(kernel, dtype, classes.get(kernel, "16x128x1"), "sm_90")]
