"""Facts of a compiled kernel, read from its assembly and the compiler's report."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

from .wgmma_hazards import hazards

HAZARD = "registers change while wgmma may read them: results may be wrong"
SHARED = {"sm_80": 166912, "sm_90": 232448, "sm_100": 232448, "gfx942": 65536}  # bytes a program
REGISTERS = 65536  # of one multiprocessor, 32 bits each
VECTORS = 512  # vector registers that the waves on one SIMD unit of an AMD GPU share

_WIDTH = {"ubyte": 1, "sbyte": 1, "ushort": 2, "sshort": 2, "short": 2, "byte": 1, "dword": 4,
          "dwordx2": 8, "dwordx3": 12, "dwordx4": 16}  # fmt: skip
_PTX = re.compile(r"\b(ld|st)\.global[\w.:]*?(?:\.v(\d))?\.[bfus](\d+)\b")
_COPY = re.compile(r"\bcp\.async\.c[ag]\.shared\.global\S*\s+\[[^\]]*\],\s*\[[^\]]*\],\s*(\w+)")
_AMD = re.compile(r"\b(?:global|buffer)_(load|store)(?:_lds)?_([a-z]+(?:x\d)?)(?:_d16\w*)?\b")
_MATRIX = {
    "tcgen05": re.compile(r"\btcgen05\.mma\b"),
    "wgmma": re.compile(r"\bwgmma\.mma_async\b"),
    "mma.sync": re.compile(r"\bmma\.sync\b"),
    "mfma": re.compile(r"\bv_mfma_"),
}
_TMA = re.compile(r"\bcp\.async\.bulk\.tensor\b")
_REPORT = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of one form. `load` and `store` are the widest global memory accesses in bytes."""

    registers: int  # of one thread
    spills: int  # bytes of one thread
    shared: int  # bytes of one program
    threads: int
    load: int
    loads: int  # how many instructions load global memory
    store: int
    matrix: str  # the instruction that multiplies matrices, if there is one
    tma: bool  # whether tiles are copied by the tensor memory accelerator
    serialized: bool = False  # whether ptxas serializes its wgmma instructions
    hazard: bool = False  # whether registers change that an unfinished wgmma may read

    def as_json(self) -> dict[str, int | str | bool]:
        """The facts as plain values, in the order above."""
        return asdict(self)


def of_nvidia(ptx: str, report: str, shared: int, warps: int) -> Facts:
    """Facts from PTX and the report of `ptxas -v`. ValueError if that has no register count."""
    used = re.search(r"Used (\d+) registers", report)
    if used is None:
        raise ValueError(f"ptxas reported no registers:\n{report}")
    spilled = _REPORT.search(report)
    threads = re.search(r"\.(?:reqntid|maxntid)\s+(\d+)", ptx)
    widths: dict[str, list[int]] = {"ld": [], "st": []}
    for kind, vector, bits in _PTX.findall(ptx):
        widths[kind].append(int(vector or 1) * int(bits) // 8)
    widths["ld"] += [int(size, 0) for size in _COPY.findall(ptx)]
    return Facts(
        registers=int(used[1]),
        spills=sum(map(int, spilled.groups())) if spilled else 0,
        shared=shared,
        threads=int(threads[1]) if threads else 32 * warps,
        load=max(widths["ld"], default=0),
        loads=len(widths["ld"]),
        store=max(widths["st"], default=0),
        matrix=_matrix(ptx),
        tma=_TMA.search(ptx) is not None,
        serialized="wgmma.mma_async instructions are serialized" in report,
        hazard=bool(hazards(ptx)),
    )


def of_amd(assembly: str, shared: int, warps: int) -> Facts:
    """Facts from the assembly, at whose end the compiler writes its report."""
    widths: dict[str, list[int]] = {"load": [], "store": []}
    for kind, size in _AMD.findall(assembly):
        widths[kind].append(_WIDTH[size])
    return Facts(
        registers=_amd_number(assembly, "vgpr_count"),
        spills=4 * (_amd_number(assembly, "vgpr_spill_count")),
        shared=shared,
        threads=64 * warps,
        load=max(widths["load"], default=0),
        loads=len(widths["load"]),
        store=max(widths["store"], default=0),
        matrix=_matrix(assembly),
        tma=False,
    )


def _amd_number(assembly: str, name: str) -> int:
    found = re.search(rf"^\s*\.{name}:\s+(\d+)", assembly, re.MULTILINE)
    if found is None:
        raise ValueError(f"the assembly says no .{name}")
    return int(found[1])


def _matrix(assembly: str) -> str:
    return next((name for name, pattern in _MATRIX.items() if pattern.search(assembly)), "")


def beyond(facts: Facts, target: str) -> list[str]:
    """The hardware limits that a form exceeds. It would not start on this target.

    >>> from onefold.kernels.aot.facts import Facts, beyond
    >>> beyond(Facts(32, 0, 70000, 128, 16, 1, 16, "", False), "gfx942")
    ['70000 bytes of shared memory, of 65536']
    """
    found = []
    if facts.shared > SHARED[target]:
        found.append(f"{facts.shared} bytes of shared memory, of {SHARED[target]}")
    if target.startswith("sm_"):
        if facts.registers * facts.threads > REGISTERS:
            found.append(f"{facts.registers} registers x {facts.threads} threads, of {REGISTERS}")
    else:
        waves = -(-facts.threads // 256)  # on each of four SIMD units
        if facts.registers * waves > VECTORS:
            found.append(f"{facts.registers} registers x {waves} waves, of {VECTORS}")
    return found
