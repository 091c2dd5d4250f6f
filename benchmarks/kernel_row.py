"""A row of benchmarks/kernels.py: one kernel at one size, its inputs, its peers and its target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from onefold import kernels
from onefold.kernels.select import pick, triton_kernel

Function = Callable[..., Any]  # a kernel gives a tensor, or several
Inputs = tuple[Any, ...]  # tensors, lists of them and numbers: what one kernel takes
Lists = list[Tensor]  # of the parameters, or of what is kept of each
Sizes = tuple[int, ...]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def ours(reference: Function) -> Function:
    """What onefold runs here for a torch reference, found at its first call.

    LookupError on a GPU where it has no Triton kernel.
    """

    def run(*args: object, **kwargs: object) -> object:
        if DEVICE == "cuda" and triton_kernel(reference) is None:
            raise LookupError(f"{reference.__name__} has no Triton kernel")
        return pick(reference, DEVICE)(*args, **kwargs)

    return run


class TritonKernels:
    """The functions of one module of kernels, as onefold runs them here."""

    def __init__(self, name: str) -> None:
        self._module = import_module(f"{kernels.__name__}.{name}_ref")

    def __getattr__(self, name: str) -> Function:
        return ours(getattr(self._module, name))


@dataclass
class Maker:
    """Makes the random inputs of a row: rounded to a dtype, then `held` in another, if given."""

    dtype: torch.dtype
    device: str
    held: torch.dtype | None = None

    def __call__(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        made = torch.randn(shape, dtype=dtype or self.dtype, device=self.device)
        return made if self.held is None else made.to(self.held)

    def below(self, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(high, shape, device=self.device)


@dataclass(frozen=True)
class Target:
    """What a row is to reach on one H200.

    `unit` is "TB/s" or "TFLOP/s" (at least `value`), "ms" (at most), or the name of a candidate:
    `value` times its speed, at least.
    """

    value: float
    unit: str

    def reached(self, seconds: dict[str, float], moved: int, flops: int) -> float:
        """What share of the target the row reached: 1 is all of it."""
        mine = seconds["onefold"]
        if self.unit == "TB/s":
            return moved / mine / 1e12 / self.value
        if self.unit == "TFLOP/s":
            return flops / mine / 1e12 / self.value
        if self.unit == "ms":
            return self.value / (mine * 1e3)
        return seconds[self.unit] / mine / self.value

    def __str__(self) -> str:
        if self.unit == "ms":
            return f"at most {self.value:g} ms"
        if "/" in self.unit:
            return f"at least {self.value:g} {self.unit}"
        return f"at least {self.value:g} of the speed of {self.unit}"


@dataclass(frozen=True)
class Row:
    """One kernel at one size.

    `inputs(make, *sizes)` are the arguments of all candidates: `ours` is the reference whose Triton
    kernel is measured, `torch` the same in plain torch, `cudnn` the same by cuDNN where torch may
    choose another, `liger` the name of Liger's. `elements` are those read and written, `flops`
    those of matrix products.
    """

    family: str
    name: str
    sizes: Sizes
    tiny: Sizes
    inputs: Callable[..., Inputs]
    ours: Function
    torch: Function
    elements: Callable[..., int]
    flops: Callable[..., int] = field(default=lambda *_: 0)
    dtype: torch.dtype = torch.bfloat16
    cudnn: Function | None = None
    liger: tuple[str, Function] | None = None  # its name in liger_kernel, and how it is called
    compiled: bool = True  # whether torch.compile takes it
    random: bool = False  # whether the candidates give different numbers
    target: Target | None = None

    @property
    def title(self) -> str:
        return f"{self.family}: {self.name} {'x'.join(map(str, self.sizes))}"

    @property
    def checked(self) -> Sizes:
        """At most 2048 of each size: numbers are compared in float64, which is slow."""
        return tuple(min(size, 2048) if DEVICE == "cuda" else tiny
                     for size, tiny in zip(self.sizes, self.tiny, strict=True))  # fmt: skip

    def bytes(self, sizes: Sizes) -> int:
        return self.elements(*sizes) * self.dtype.itemsize


SQUARE, TINY_SQUARE = (8192, 8192, 8192), (24, 16, 40)
ROWS, TINY_ROWS = (16384, 4096), (6, 40)
WINDOW = ((3, 3), (2, 2), (1, 1), (1, 1), False)
CONV = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)


def rows_of(name: str, ours: Function, plain: Function, inputs: Function | None = None,
          moved: float = 2.0, **more: Any) -> Row:  # fmt: skip
    """A kernel on the rows of a matrix, which moves it `moved` times."""
    return Row(
        more.pop("family"), name, more.pop("sizes", ROWS), more.pop("tiny", TINY_ROWS),
        inputs or (lambda make, m, n: (make(m, n),)), ours, plain,
        lambda m, n: int(moved * m * n), **more,
    )  # fmt: skip
