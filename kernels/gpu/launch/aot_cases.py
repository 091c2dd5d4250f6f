"""Cases: the forms of Triton kernels that are compiled ahead of time and have a budget."""

from __future__ import annotations

from dataclasses import dataclass

from .jit_kernel import Kernel

NVIDIA = ("sm_80", "sm_90", "sm_100")
TARGETS = (*NVIDIA, "gfx942")


@dataclass(frozen=True)
class Case:
    """One compiled form: the types of the arguments in order, and the constants.

    Types are Triton's: "*bf16" is a pointer, "i32" an integer, "fp32" a float. A "?" marks a value
    that is not known to be divisible by 16. None is an argument that is not passed. The types of
    the last numbers may be left out: they are "i32", or as annotated "i64?" or "fp64". A form for
    only some targets lists them in `targets` and says `why`.
    """

    kernel: Kernel
    types: tuple[str | None, ...]
    constants: tuple[object, ...] = ()
    warps: int = 4
    stages: int = 3
    fused: bool = True
    resident: int = 0
    targets: tuple[str, ...] = TARGETS
    why: str = ""

    def __post_init__(self) -> None:
        left_out = self.kernel.types[len(self.types) :]
        object.__setattr__(self, "types", (*self.types, *left_out))
        assert len(self.types) + len(self.constants) == len(self.kernel.names), self
        assert set(self.targets) <= set(TARGETS), self.targets
        assert self.targets == TARGETS or self.why, f"{self}: why not on every target?"

    @property
    def key(self) -> str:
        """The key of the budget."""
        return f"{module_of(self.kernel)}.{self}"

    def __str__(self) -> str:
        types = ",".join(kind or "-" for kind in self.types)
        constants = ",".join(getattr(value, "__name__", str(value)) for value in self.constants)
        shared = f" {self.resident} resident" if self.resident else ""
        return f"{self.kernel.name}({types}; {constants}) {self.warps}x{self.stages}{shared}"


def module_of(kernel: Kernel) -> str:
    """The name of the family that a kernel is in."""
    return str(kernel.jit.fn.__module__).rpartition(".")[2]


def per_maker(
    kernel: Kernel,
    types: tuple[str | None, ...],
    constants: tuple[object, ...],
    warps: int,
    stages: int,
    on_amd: int,
) -> list[Case]:
    """The cases of a form with another number of stages on AMD, or none there if it is 0."""
    if stages == on_amd:
        return [Case(kernel, types, constants, warps, stages)]
    why = "AMD has less shared memory, so fewer stages or other tiles"
    found = [Case(kernel, types, constants, warps, stages, targets=NVIDIA, why=why)]
    if on_amd:
        amd = tuple(target for target in TARGETS if target not in NVIDIA)
        found.append(Case(kernel, types, constants, warps, on_amd, targets=amd, why=why))
    return found


def tensors(dtype: str, *names: str) -> tuple[str, ...]:
    """Aligned pointers to a dtype, one for each name.

    >>> from onefold.kernels.gpu.launch.aot_cases import tensors
    >>> tensors("bf16", "x", "y")
    ('*bf16', '*bf16')
    """
    return (f"*{dtype}",) * len(names)
