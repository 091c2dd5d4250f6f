"""Lowers a Triton kernel to Triton's IR for a target, which finds errors of types and shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend


def lower(source: ASTSource, target: GPUTarget, options: Mapping[str, object]) -> str:
    """The simplified IR as text. Raises what Triton's compiler raises."""
    backend = make_backend(target)
    parsed = backend.parse_options(dict(options, **source.parse_options()))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions, modules = backend.get_codegen_implementation(parsed), backend.get_module_map()
    stages: dict[str, Callable[..., object]] = {}
    backend.add_stages(stages, parsed, source.language)
    return str(stages["ttir"](source.make_ir(target, parsed, functions, modules, context), {}))
