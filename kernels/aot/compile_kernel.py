"""Compiles one form of a kernel for one target. No GPU is needed."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel
from triton.runtime.cache import get_cache_manager

from ..gpu.launch import configs
from ..gpu.launch.aot_cases import TARGETS, Case
from ..gpu.launch.jit_kernel import INTERPRETED, compiler_options
from ..gpu.launch.registry import all_tuned, listed
from ..gpu.launch.stable_key import settle_keys
from .facts import Facts, of_amd, of_nvidia

COMPILER = f"triton {triton.__version__}"
_FACTS = "onefold_facts_4.json"  # kept next to the binary in Triton's cache
GPUS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
_DIVISIBLE: list[str | int] = ["tt.divisibility", 16]
_SMALL: list[str | int] = ["tt.pointer_range", 32]  # AMD: a tensor of less than 2 GiB


@cache
def all_cases(table: Path = configs.PATH) -> dict[str, Case]:
    """All forms by key: those that the modules of kernels/gpu list, and those of a table's entries.

    An entry is compiled for its own architecture, if that is a target.
    """
    found: dict[str, Case] = {}
    for case in listed("CASES"):
        assert found.setdefault(case.key, case) is case, f"two cases are {case.key}"
    tuned = all_tuned()
    for name, config in configs.read(table).items():
        kernel, dtype, shape_class, arch = name.split()
        for case in tuned[kernel].cases(dtype, tuned[kernel].shapes[shape_class], config):
            if arch in case.targets:
                known = found.get(case.key)
                wanted = {arch, *(known.targets if known else ())}
                targets = tuple(target for target in TARGETS if target in wanted)
                found[case.key] = replace(case, targets=targets, why=f"the table has {name}")
    return found


def work(key: str, target: str, table: Path) -> Facts:
    """The facts of one form, given its key. Runs in a worker."""
    return facts_of(all_cases(table)[key], target)


def facts_of(case: Case, target: str) -> Facts:
    """Compile a case for a target. Raises Triton's error if it does not compile.

    Earlier results are taken from Triton's cache.
    """
    resident = 0 if target.startswith("gfx") else case.resident
    options = compiler_options(case.warps, case.stages, case.fused, resident)
    return compile_source(source_of(case, target), target, options)[1]


def compile_source(
    source: ASTSource, target: str, options: Mapping[str, object]
) -> tuple[CompiledKernel, Facts]:
    """Compile a kernel with the types and constants of one form; see `facts_of`."""
    assert not INTERPRETED, "kernels are interpreted in this process, so they cannot be compiled"
    report = io.StringIO()
    with knobs.nvidia.scope(), redirect_stdout(report):
        knobs.nvidia.dump_ptxas_log = True
        compiled = triton.compile(source, target=GPUS[target], options=dict(options))
        kept = get_cache_manager(compiled.hash)
        known = kept.get_file(_FACTS)
        if known is not None:
            return compiled, Facts(**json.loads(Path(known).read_text()))
        if target.startswith("sm_") and "registers" not in report.getvalue():
            with knobs.compilation.scope():  # compiled by another program: once more, for the log
                knobs.compilation.always_compile = True
                compiled = triton.compile(source, target=GPUS[target], options=dict(options))
    facts = _read(compiled, target, report.getvalue())
    kept.put(json.dumps(facts.as_json()), _FACTS, binary=False)
    return compiled, facts


def _read(compiled: CompiledKernel, target: str, report: str) -> Facts:
    metadata = compiled.metadata
    if target.startswith("sm_"):
        return of_nvidia(compiled.asm["ptx"], report, metadata.shared, metadata.num_warps)
    return of_amd(compiled.asm["amdgcn"], metadata.shared, metadata.num_warps)


def source_of(case: Case, target: str) -> ASTSource:
    """The source with the properties that the JIT would infer from the arguments."""
    names = case.kernel.names
    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], object] = {}
    attributes: dict[tuple[int, ...], list[list[str | int]]] = {}
    for index, kind in enumerate((*case.types, *(None,) * len(case.constants))):
        if kind is None:
            signature[names[index]] = "constexpr"
            given = index >= len(case.types)
            constants[(index,)] = case.constants[index - len(case.types)] if given else None
            continue
        signature[names[index]] = kind.removesuffix("?")
        pointer = kind.startswith("*")
        found = []
        if not kind.endswith("?") and (pointer or re.fullmatch(r"[iu]\d+", kind)):
            found.append(_DIVISIBLE)
        if pointer and target == "gfx942":
            found.append(_SMALL)
        if found:
            attributes[(index,)] = found
    settle_keys((case.kernel.jit, *case.constants))
    return ASTSource(
        fn=case.kernel.jit, signature=signature, constexprs=constants, attrs=attributes
    )
