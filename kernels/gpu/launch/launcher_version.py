"""Which versions of Triton have a launcher that takes what `Kernel` passes, and what others get.

Compiled kernels are started with plain addresses, through a launcher that Triton does not document.
Its arguments were compared for the versions in `KNOWN`. With another version every launch goes
through Triton's `kernel[grid]`, which is slower, and right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

# Started as run(x, y, z, stream, function, packed metadata, launch metadata, hooks, arguments).
KNOWN = ((3, 6), (3, 7))


def is_known(version: str) -> bool:
    """Whether compiled kernels of this version of Triton are started directly.

    >>> from onefold.kernels.gpu.launch.launcher_version import is_known
    >>> is_known("3.7.1"), is_known("3.8.0+git12345"), is_known("4")
    (True, False, False)
    """
    return tuple(map(int, re.findall(r"\d+", version)[:2])) in KNOWN


class Pointer:
    """An address and the dtype of what is there, as Triton takes them in place of a tensor."""

    def __init__(self, address: int, dtype: torch.dtype) -> None:
        self.address, self.dtype = address, dtype

    def data_ptr(self) -> int:
        """The address."""
        return self.address


class StartedByTriton:
    """In place of a compiled form: takes the arguments of the known launchers.

    `args` are those of the first launch, whose tensors tell the dtypes of later addresses.
    """

    function: object = None
    packed_metadata: object = None

    def __init__(self, jit: Any, args: Sequence[object], options: Mapping[str, int]) -> None:
        self.jit, self.options = jit, options
        self.dtypes = [arg.dtype if isinstance(arg, Tensor) else None for arg in args]
        self.run: Callable[..., None] = self._run

    def _run(
        self, x: int, y: int, z: int, stream: object, function: object, metadata: object,
        launch_metadata: object, enter: object, exit_: object, *args: Any,
    ) -> None:  # fmt: skip
        given = [
            arg if dtype is None else Pointer(arg, dtype)
            for arg, dtype in zip(args, self.dtypes, strict=True)
        ]
        self.jit[x, y, z](*given, **self.options)
