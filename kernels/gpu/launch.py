"""Launch: a Triton kernel called through a handle that is found again by what its code depends on.

Triton's own launch binds arguments by name and reads each one's properties in Python, 5 to 10
microseconds a call. Here the compiled form is kept by the dtypes and alignments of the tensors, the
divisibility of the integers and the constants, and called at once: less than one microsecond.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
from triton import knobs

_ALIGNMENT = 16  # bytes; and what integers are specialised on
INTERPRETED = bool(knobs.runtime.interpret)


class Kernel:
    """A Triton kernel; its constants (`tl.constexpr`) are the last of its parameters.

    >>> from onefold.kernels.gpu.launch import Kernel
    >>> @Kernel  # doctest: +SKIP
    ... def double(x, y, n, BLOCK: tl.constexpr): ...
    >>> double.launch((blocks,), (x, y, n), (1024,), warps=4)  # doctest: +SKIP
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self.name = function.__name__
        self.jit: Any = triton.jit(function)
        self.names: tuple[str, ...] = tuple(self.jit.arg_names)
        self._compiled: dict[Any, Any] = {}

    def launch(
        self,
        grid: tuple[int, ...],
        args: Sequence[Any],
        constants: Sequence[Any] = (),
        warps: int = 4,
        stages: int = 3,
        fused: bool = True,
    ) -> None:
        """Run `grid` programs. A grid with a zero does nothing.

        `fused=False` keeps every multiplication and addition an operation of its own (no fma), for
        kernels whose bits must not depend on the compiler.
        """
        assert len(args) + len(constants) == len(self.names), (self.names, args, constants)
        if 0 in grid:
            return
        if INTERPRETED:
            self.jit[grid](*args, *constants)
            return
        stream = torch.cuda.current_stream().cuda_stream
        key = (*map(_kind, args), *constants, warps, stages, fused, torch.cuda.current_device())
        compiled = self._compiled.get(key)
        if compiled is None:
            self._compiled[key] = self.jit[grid](
                *args,
                *constants,
                num_warps=warps,
                num_stages=stages,
                enable_fp_fusion=fused,
            )
            return
        x, y, z = (*grid, 1, 1)[:3]
        compiled.run(
            x, y, z, stream, compiled.function, compiled.packed_metadata, None, None, None,
            *args, *constants,
        )  # fmt: skip


def _kind(arg: Any) -> Any:
    """What compiled code depends on, of an argument."""
    if isinstance(arg, torch.Tensor):
        return arg.dtype, arg.data_ptr() % _ALIGNMENT == 0
    if type(arg) is int:
        return arg == 1, arg % _ALIGNMENT == 0, -(2**31) <= arg < 2**31
    return type(arg)
