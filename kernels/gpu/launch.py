"""Launch: a Triton kernel called through a handle that is found again by what its code depends on.

Triton's own launch binds arguments by name and reads each one's properties in Python, 5 to 10
microseconds a call. Here the compiled form is kept by the dtypes and alignments of the tensors, the
divisibility of the integers and the constants, and called at once: less than one microsecond.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import torch
import triton
from triton import knobs

_ALIGNMENT = 16  # bytes; and what integers are specialised on
INTERPRETED = bool(knobs.runtime.interpret)


class Kernel:
    """A Triton kernel; its constants (`tl.constexpr`) are the last of its parameters.

    An integer that is annotated `tl.int64` may be any of 64 bits, and nothing is compiled anew
    when it changes.

    >>> from onefold.kernels.gpu.launch import Kernel
    >>> @Kernel  # doctest: +SKIP
    ... def double(x, y, n, BLOCK: tl.constexpr): ...
    >>> double.launch((blocks,), (x, y, n), (1024,), warps=4)  # doctest: +SKIP
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self.name = function.__name__
        given = signature(function).parameters.values()
        plain = [parameter.name for parameter in given if "int64" in str(parameter.annotation)]
        self.jit: Any = triton.jit(function, do_not_specialize=plain)
        self.names: tuple[str, ...] = tuple(self.jit.arg_names)
        self._kinds = [type if name in plain else _kind for name in self.names]
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
        kinds = [kind(arg) for kind, arg in zip(self._kinds, args, strict=False)]
        key = (*kinds, *constants, warps, stages, fused, torch.cuda.current_device())
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
