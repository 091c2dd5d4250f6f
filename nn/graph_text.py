"""A graph as text: the tree of its modules with parameters and, once compiled, operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..graph.graph_config import GraphConfig
from ..graph.ir import UPDATE, Program, ProgramStep
from ..graph.program_text import Part, laid, operator, parts_of, tensor
from .module import Module


class GraphTree:
    """The lines of `repr(graph)`; tags are the reference's."""

    def __init__(self, program: Program | None, with_line: bool) -> None:
        self._program = program
        self._parts = {} if program is None else parts_of(program)
        self._with_line = with_line

    def text(self, name: str, kind: str, config: GraphConfig, modules: Mapping[str, Module]) -> str:
        """The whole tree."""
        program = self._program or Program()
        body = [f"(CONFIG:config:{config!r})"]
        body += [f"(INPUT:{v.name}:{tensor(v.meta)})" for v in program.inputs]
        outside = [v.value for v in program.variables if v.value.name.startswith("outside.")]
        body += [f"(VARIABLE:{v.name}:{tensor(v.meta)})" for v in outside]
        for path, module in modules.items():
            body += self._module(path, module)
        part = self._parts.get("", Part())
        body += self._operators([*part.forward, *part.backward])
        body += [f"(ASSIGN:{v.value.name}:{x!r}:{laid(x.meta)})" for v, x in program.assigns] + [
            f"(GRADIENT:{v.value.name}:{x!r}:{laid(x.meta)})" for v, x in program.gradients
        ]
        update = self._parts.get(UPDATE, Part())
        body += _block("(UPDATE)", self._operators(update.forward)) if update.forward else []
        body += [f"(OUTPUT:{v!r}:{tensor(v.meta)})" for v in program.outputs]
        return "\n".join(_block(f"(GRAPH:{name}:{kind})", body))

    def _module(self, path: str, module: Module) -> list[str]:
        part = self._parts.get(path, Part())
        body = [f"(INPUT:{v!r}:{tensor(v.meta)})" for v in part.inputs.values()]
        view = module.__dict__.get("_graph_view")
        if view is not None:
            stage, placement, checkpointing, saved, offloading = view.settings
            body.append(
                f"(CONFIG:{path}:GraphModule(stage_id={stage}, stage_placement={placement}, "
                f"activation_checkpointing={checkpointing}"
                f"{f', saved_activations={saved}' if saved else ''}"
                f"{', activation_offloading=True' * offloading}))"
            )
        for tag, table in (("PARAMETER", module._parameters), ("BUFFER", module._buffers)):
            kept = {name: each for name, each in table.items() if each is not None}
            body += [f"({tag}:{path}.{name}:{tensor(x.meta)}): ()" for name, x in kept.items()]
        for name, child in module._modules.items():
            if child is not None:
                body += self._module(f"{path}.{name}", child)
        body += self._operators([*part.forward, *part.backward])
        body += [f"(OUTPUT:{v!r}:{tensor(v.meta)})" for v in part.outputs.values()]
        return _block(f"(MODULE:{path}:{type(module).__name__}({module.extra_repr()}))", body)

    def _operators(self, steps: Iterable[ProgramStep]) -> list[str]:
        return [operator(step, self._with_line) for step in steps]


def _block(head: str, body: list[str]) -> list[str]:
    if not body:
        return [f"{head}: ()"]
    return [f"{head}: (", *[f"  {line}" for line in body], ")"]
