"""Host memory: tensors on the CPU, and those without data that stand for them."""

from __future__ import annotations

from torch import Tensor


def on_host(x: Tensor) -> bool:
    """Whether a tensor is on the CPU or on the device "meta".

    A reference that does other work on the CPU than elsewhere does that on meta tensors, too: from
    these the planning of memory learns how results lie on the CPU.
    """
    return x.is_cpu or x.is_meta
