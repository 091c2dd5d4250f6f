"""What the tuner times is the kernel: with any configuration it gives the rule's result."""

from dataclasses import replace

import pytest
import torch

from onefold.kernels.cross_entropy_ref import Classes
from onefold.kernels.gpu.attention import attention_cases
from onefold.kernels.gpu.conv import conv_kernels
from onefold.kernels.gpu.launch import configs
from onefold.kernels.gpu.launch.registry import all_tuned
from onefold.kernels.gpu.reduce import (
    cross_entropy_kernels,
    norm_kernels,
    reduce_kernels,
    softmax_kernels,
)
from onefold.kernels.tune.config_search import search

# Sizes small enough for the interpreter.
TINY = {
    "matmul": (40, 36, 48),
    "convolution": (1, 6, 32, 20),
    "convolution_weight_grad": (1, 6, 32, 40),
    "convolution_boxes": (1, 6, 64, 72),
    **{tuned.kernel: (1, 2, 40, 16) for tuned in attention_cases.TUNED},
}


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [(kernel, dtype) for kernel, tuned in all_tuned().items() for dtype in tuned.dtypes],
    ids=str,
)
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
    needed = []

    class Recording(dict):
        def get(self, name, default=None):
            needed.append(name)
            return default

    monkeypatch.setattr(configs, "_table", Recording)
    monkeypatch.setattr(configs, "architecture", lambda: "sm_90")
    x = torch.randn(13, 71)
    target = torch.arange(13)
    window = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    image, w = torch.randn(1, 16, 5, 5), torch.randn(19, 16, 3, 3)
    calls = {
        "fold": lambda: reduce_kernels.total(x, 1, False, None),
        "scan": lambda: reduce_kernels.cumsum(x, 1, False),
        "softmax": lambda: softmax_kernels.softmax(x, 1, None),
        "softmax_grad": lambda: softmax_kernels.softmax_grad(x, x, 1),
        "norm": lambda: norm_kernels.rms_norm(x, None, None, (71,), 1e-5),
        "norm_grad": lambda: norm_kernels.rms_norm_grad(x, x, None, (71,), 1e-5),
        "cross_entropy": lambda: cross_entropy_kernels.row_losses(x, target, -100),
        "cross_entropy_grad": lambda: cross_entropy_kernels.cross_entropy_grad(
            torch.ones(13), x, target, None, None, Classes(0, 71, -100, 0.0)
        ),
        "cross_entropy_and_grad": lambda: cross_entropy_kernels.row_losses_and_grad(
            x, target, None, -100
        ),
        "convolution": lambda: conv_kernels.convolution(image, w, None, *window),
        "convolution_weight_grad": lambda: conv_kernels.convolution_weight_grad(
            torch.randn(1, 19, 5, 5), image, (19, 16, 3, 3), *window
        ),
    }
    known = all_tuned()
    # Those of products, boxes and attention have their own tests.
    apart = {"matmul", "convolution_boxes", *(tuned.kernel for tuned in attention_cases.TUNED)}
    assert set(known) == {*apart, *calls}
    classes = {"convolution": "32x32x16", "convolution_weight_grad": "32x16x32"}
    for kernel, call in calls.items():
        needed.clear()
        call()
        dtype = known[kernel].name(torch.float32)
        mine = [name for name in needed if name.startswith(f"{kernel} ")]
        assert mine == [configs.key(kernel, dtype, classes.get(kernel, "16x128x1"), "sm_90")]
