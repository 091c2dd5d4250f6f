"""Kernel: a Triton kernel whose compiled form is found by what its code depends on.

Triton's own launch binds arguments by name and inspects each one in Python, which takes 5 to 10
microseconds per call. Here the compiled form is found by the dtypes and alignments of the tensors,
the divisibility of the integers and the constants. It is then launched with plain addresses.

Kernels run on the device of their tensors, in torch's current stream there. There are no locks: if
two threads launch a form for the first time at the same time, both compile it. This is wasted work
but correct. Triton's launch hooks see only the first launch of a form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib import import_module
from inspect import signature
from typing import Any

import torch
import triton
from torch import Tensor
from triton import knobs
from triton.runtime import driver

from ... import interpreter
from .launch_trace import Argument, Compiled, Grid, active
from .launcher_version import StartedByTriton, is_known
from .stable_key import settle_keys

_ALIGNMENT = 16  # bytes; integers are specialized on being a multiple of it
_REGISTERS = 65536  # of an NVIDIA multiprocessor; each thread gets a multiple of 8
_LANES = 32  # threads of a warp there
_NARROW = 2**31  # bytes; on AMD, loads of smaller tensors use 32-bit offsets
ON_AMD = torch.version.hip is not None
STARTED_DIRECTLY = is_known(triton.__version__)
INTERPRETED = bool(knobs.runtime.interpret)
if INTERPRETED:
    import_module(f"{interpreter.__name__}.repair").apply()


def compiler_options(warps: int, stages: int, fused: bool, resident: int) -> dict[str, int]:
    """The options of Triton's compiler; see `Kernel.launch`.

    >>> from onefold.kernels.gpu.launch.jit_kernel import compiler_options
    >>> compiler_options(warps=4, stages=2, fused=True, resident=5)["maxnreg"]
    96
    """
    options = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": fused}
    if resident:
        options["maxnreg"] = _REGISTERS // (_LANES * warps * resident) // 8 * 8
    return options


class Kernel:
    """A Triton kernel; its constants (`tl.constexpr`) are the last of its parameters.

    An integer that is annotated `tl.int64` may have any 64-bit value; a new value does not trigger
    a compilation. The first argument is a tensor, and all tensors are on its device.

    >>> from onefold.kernels.gpu.launch.jit_kernel import Kernel
    >>> @Kernel  # doctest: +SKIP
    ... def double(x, y, n, BLOCK: tl.constexpr): ...
    >>> double.launch((blocks,), (x, y, n), (1024,), warps=4)  # doctest: +SKIP
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self.name = function.__name__
        given = signature(function).parameters.values()
        notes = {parameter.name: str(parameter.annotation) for parameter in given}
        plain = [name for name, note in notes.items() if "int64" in note]
        self.jit: Any = triton.jit(function, do_not_specialize=plain)
        self.names: tuple[str, ...] = tuple(self.jit.arg_names)
        self.plain = [name in plain for name in self.names]
        # What its numbers are by default in an ahead-of-time case.
        self.types = [
            "i64?" if "int64" in note else "fp64" if "float64" in note else "i32"
            for note in notes.values()
            if "constexpr" not in note
        ]
        self._compiled: dict[tuple[object, ...], Compiled] = {}

    def launch(
        self,
        grid: Grid,
        args: Sequence[Argument],
        constants: Sequence[object] = (),
        warps: int = 4,
        stages: int = 3,
        fused: bool = True,
        resident: int = 0,
    ) -> Compiled | None:
        """Run `grid` programs and return the compiled form. A grid with a zero does nothing.

        `fused=False` prevents the contraction of multiplications and additions to fma, for kernels
        whose bits must not depend on the compiler. `resident` programs share a multiprocessor: the
        compiler gives each so few registers that they fit.
        """
        assert len(args) + len(constants) == len(self.names), (self.names, args, constants)
        if 0 in grid:
            return None
        trace = active()
        if trace is not None:
            trace.launched(self, grid, args, constants, (warps, stages, fused, resident))
            return None
        if INTERPRETED:
            self.jit[grid](*args, *constants)
            return None
        first = args[0]
        assert isinstance(first, Tensor), f"{self.name}: the first argument is no tensor"
        device = first.get_device()
        key: list[object] = [device, warps, stages, fused, resident, *constants]
        passed: list[object] = []
        for arg, plain in zip(args, self.plain, strict=False):
            if isinstance(arg, Tensor):
                at = arg.data_ptr()
                key += arg.dtype, at % _ALIGNMENT == 0
                if ON_AMD:
                    key.append(arg.untyped_storage().size() < _NARROW)
                passed.append(at)
            else:
                key.append(_kind(arg) if type(arg) is int and not plain else type(arg))
                passed.append(arg)
        compiled = self._compiled.get(form := tuple(key))
        if compiled is not None:
            start(compiled, grid, device, (*passed, *constants))
            return compiled
        options = compiler_options(warps, stages, fused, 0 if ON_AMD else resident)
        compiled = self._compiled[form] = self._compile(grid, device, (*args, *constants), options)
        return compiled

    def _compile(
        self, grid: Grid, device: int, args: tuple[object, ...], options: dict[str, int]
    ) -> Compiled:
        """Compile the form for these arguments and run it once."""
        assert device >= 0, f"{self.name}: the first argument is no tensor on a GPU"
        with torch.cuda.device(device):
            return self.bound(grid, args, options)

    def bound(self, grid: Grid, args: tuple[object, ...], options: dict[str, int]) -> Compiled:
        """Let Triton bind the arguments, compile the form if it is new, and run it."""
        settle_keys((self.jit, *args))
        compiled: Compiled = self.jit[grid](*args, **options)
        return compiled if STARTED_DIRECTLY else StartedByTriton(self.jit, args, options)

    def prepared(
        self,
        grid: Grid,
        numbers: Sequence[int],
        constants: Sequence[object],
        tensors: int,
        warps: int = 4,
        fused: bool = True,
    ) -> Callable[[Sequence[Any]], None]:
        """Bind the last numbers and the constants of a launch.

        The returned function takes the arguments before them: `tensors` tensors, always of the same
        dtypes, then floats, or integers that are annotated `tl.int64`.
        """
        ends = (*numbers, *constants)
        handles: dict[int, Compiled] = {}  # by device, for tensors that are all aligned

        def run(args: Sequence[Any]) -> None:
            if active() is not None:
                self.launch(grid, (*args, *numbers), constants, warps, fused=fused)
                return
            device = args[0].get_device()
            addresses = [x.data_ptr() for x in args[:tensors]]
            # The low bits of all addresses together show whether one is not aligned.
            bits = 0
            for at in addresses:
                bits |= at
            compiled = handles.get(device)
            if compiled is not None and bits % _ALIGNMENT == 0:
                start(compiled, grid, device, (*addresses, *args[tensors:], *ends))
                return
            compiled = self.launch(grid, (*args, *numbers), constants, warps, fused=fused)
            if compiled is not None and bits % _ALIGNMENT == 0 and not ON_AMD:
                handles[device] = compiled

        return run


def start(compiled: Compiled, grid: Grid, device: int, args: tuple[object, ...]) -> None:
    """Run a compiled kernel on a device, in torch's current stream there."""
    current, stream_of = driver_functions()
    if current() != device:
        with torch.cuda.device(device):
            start(compiled, grid, device, args)
        return
    compiled.run(
        *three(grid), stream_of(device), compiled.function, compiled.packed_metadata,
        None, None, None, *args,
    )  # fmt: skip


def three(grid: Grid) -> Grid:
    """The grid, filled up with ones to three dims."""
    return grid if len(grid) == 3 else (*grid, 1, 1)[:3]


@cache
def driver_functions() -> tuple[Callable[[], int], Callable[[int], int]]:
    """The functions for the current device and for the handle of a device's current stream.

    CUDA is initialized before the first launch, so torch's lazy initialization is not needed.
    """
    return torch._C._cuda_getDevice, driver.active.get_current_stream


@lru_cache(maxsize=65536)
def _kind(number: int) -> int:
    """The properties of an integer that code is specialized on: 1, multiple of 16, width."""
    kind = (number == 1) + 2 * (number % _ALIGNMENT == 0)
    if -(2**31) <= number < 2**31:
        return kind
    return kind + (4 if number < 2**63 else 8)
