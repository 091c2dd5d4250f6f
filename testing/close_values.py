"""assert_close: torch's comparison of tensors, on the logical values of tensors of Onefold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from ..engine.tensor import Tensor


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise AssertionError unless two tensors, or two trees of them, have close values.

    The arguments are those of `torch.testing.assert_close`, and tensors of torch may stand among
    those of Onefold. Of a global tensor its logical value counts, which is gathered, so all ranks
    call this.

    >>> import onefold as flow
    >>> flow.testing.assert_close(flow.ones(2) / 3, flow.tensor([0.3333333, 0.3333333]))
    >>> flow.testing.assert_close(flow.ones(2), flow.zeros(2))
    Traceback (most recent call last):
    ...
    AssertionError: Tensor-likes are not close!
    ...
    """
    torch.testing.assert_close(
        tree_map_only(Tensor, _value, actual),
        tree_map_only(Tensor, _value, expected),
        allow_subclasses=allow_subclasses,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=check_device,
        check_dtype=check_dtype,
        check_layout=check_layout,
        check_stride=check_stride,
        msg=msg,
    )


def _value(x: Tensor) -> torch.Tensor:
    return x.detach().to_torch()
