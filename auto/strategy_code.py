"""A strategy as Python code: what a person would have written to lay the model out by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from ..graph.schedules.named_schedules import schedule_named

if TYPE_CHECKING:
    from .strategy import Strategy

_WIDTH = 100


def code_of(strategy: Strategy) -> str:
    """A module with the functions `lay_out(model)` and `place(*batch)`, and the graph `Train`."""
    blocks = [_head(strategy), _lay_out(strategy), _place(strategy), _train(strategy)]
    return "\n\n\n".join(blocks) + "\n"


def _head(strategy: Strategy) -> str:
    staged, split_weights = strategy.schedule is not None, strategy.tensor > 1
    splits = [style for style in _styles(strategy) if not style.isalpha()]
    lines = [fill(f'"""Layouts: {strategy.summary}."""', _WIDTH), ""]
    if strategy.meshes > 1 or len(strategy.mesh) > 1:
        lines += ["import numpy as np", ""]
    lines += ["import onefold as flow", "from onefold import nn"]
    if split_weights:
        named = [style for style in _styles(strategy) if style not in splits]
        names = [*(["Style"] if splits else []), *map(str.upper, named), "tensor_parallel"]
        lines.append(f"from onefold.parallel import {', '.join(sorted(names))}")
    count = len(strategy.mesh)
    lines += ["", f"WHOLE = {_sbps(['flow.sbp.broadcast'] * count)}"]
    if strategy.data > 1:
        rest = ["flow.sbp.broadcast"] * (count - 1)
        lines.append(f"BATCH = {_sbps(['flow.sbp.split(0)', *rest])}")
    lines += _placements(strategy)
    if staged:
        lines.append("MODULES = [  # of each stage")
        lines += [f"    [{_names(names)}]," for names in strategy.parts]
        lines.append("]")
    lines += [f'{each} = Style("{each}", *[flow.sbp.split({each[1:]})] * 2)' for each in splits]
    if split_weights:
        lines.append("TABLE = {")
        lines += [f'    "{pattern}": {style.upper()},' for pattern, style in strategy.table]
        lines.append("}")
    return "\n".join(lines)


def _styles(strategy: Strategy) -> list[str]:
    """The styles of its table; those without hooks are named as the layout: "S0", "S1" ..."""
    return sorted({style for _, style in strategy.table})


def _placements(strategy: Strategy) -> list[str]:
    shape = (strategy.meshes, *strategy.mesh)
    if len(shape) == 2 and strategy.meshes == 1:
        return [f'STAGES = [flow.placement("{strategy.device}", range({strategy.size}))]']
    sizes = ", ".join(map(str, shape))
    lines = [
        f"MESHES = np.arange({strategy.size}).reshape({sizes})",
        f'STAGES = [flow.placement("{strategy.device}", mesh) for mesh in MESHES]',
    ]
    if strategy.schedule is not None and len(strategy.parts) > strategy.meshes:
        times = len(strategy.parts) // strategy.meshes
        turns = schedule_named(strategy.schedule).turns
        lines.append("STAGES += STAGES[::-1]" if turns else f"STAGES *= {times}")
    return lines


def _lay_out(strategy: Strategy) -> str:
    lines = []
    if strategy.meshes > 1:
        lines += [
            "def placement_of(name, tensor):",
            '    """Where a parameter or buffer lies: on the stage of its module, or the first."""',
            "    for stage, names in enumerate(MODULES):",
            '        if any(name.startswith(f"{module}.") for module in names):',
            "            return STAGES[stage]",
            "    return STAGES[0]",
            "",
            "",
        ]
    where = "placement_of" if strategy.meshes > 1 else "STAGES[0]"
    lines += [
        "def lay_out(model):",
        '    """Lay the model out over the ranks, in place."""',
        f"    model.to_global({where}, WHOLE)",
    ]
    if strategy.schedule is not None:
        lines += [
            "    for stage, names in enumerate(MODULES):",
            "        for name in names:",
            "            module = model.get_submodule(name)",
            "            module.to(nn.graph.GraphModule).set_stage(stage, STAGES[stage])",
        ]
    if strategy.tensor > 1:
        how = "plan=TABLE"
        if strategy.sequence_dim is not None:
            how += f", sequence_dim={strategy.sequence_dim}"
        lines.append(f"    tensor_parallel(model, {how})")
    for saved in dict.fromkeys(strategy.checkpointed.values()):
        names = [name for name, its in strategy.checkpointed.items() if its == saved]
        lines += [
            *_each(names),
            "        module.to(nn.graph.GraphModule).activation_checkpointing = True",
        ]
        if saved:
            lines.append("        module.to(nn.graph.GraphModule).saved_activations = [")
            lines += [f'            "{name}",' for name in saved]
            lines.append("        ]")
    if strategy.offloaded:
        lines += [
            *_each(strategy.offloaded),
            "        module.to(nn.graph.GraphModule).activation_offloading = True",
        ]
    return "\n".join([*lines, "    return model"])


def _each(names: Iterable[str]) -> list[str]:
    """The head of a loop over modules."""
    return [
        f"    for name in [{_names(names)}]:",
        "        module = model.get_submodule(name)",
    ]


def _place(strategy: Strategy) -> str:
    last_stage = len(strategy.parts) - 1
    stages = [
        "STAGES[-1]" if 0 < stage == last_stage else f"STAGES[{stage}]" for stage in strategy.inputs
    ]
    names = [f"x{number}" for number in range(len(stages))]
    last = ".to_global(sbp=BATCH)" if strategy.data > 1 else ""
    found = [
        f"{name}.to_global({stage}, WHOLE){last}" for name, stage in zip(names, stages, strict=True)
    ]
    return "\n".join([
        f"def place({', '.join(names)}):",
        '    """The tensors of a whole batch as the step takes them."""',
        "    return (",
        *(f"        {each}," for each in found),
        "    )",
    ])  # fmt: skip


def _train(strategy: Strategy) -> str:
    lines = [
        "class Train(nn.Graph):",
        "    def __init__(self, model, loss, optimizer):",
        "        super().__init__()",
        "        self.model, self.loss = model, loss",
        "        self.add_optimizer(optimizer)",
    ]
    if strategy.micro_batches > 1 or strategy.schedule is not None:
        lines.append(
            f"        self.config.set_gradient_accumulation_steps({strategy.micro_batches})"
        )
    if strategy.schedule is not None:
        lines.append(f'        self.config.set_schedule("{strategy.schedule}")')
    if strategy.zero:
        lines.append(f"        self.config.enable_zero(True, stage={strategy.zero})")
    if strategy.layout_search:
        axis = len(strategy.mesh) - 1
        lines.append(f"        self.config.enable_auto_parallel(axis={axis})")
    if strategy.amp is not None:
        lines.append(f"        self.config.enable_amp(True, dtype=flow.{strategy.amp})")
    lines += [
        "",
        "    def build(self, *batch):",
        "        loss = self.loss(self.model, *batch)",
        "        loss.backward()",
        "        return loss",
    ]
    return "\n".join(lines)


def _sbps(names: Sequence[str]) -> str:
    return f"({', '.join(names)}{',' * (len(names) == 1)})"


def _names(names: Iterable[str]) -> str:
    """Names as the entries of a list; neighbors that are numbered as a comprehension.

    >>> _names(["tokens", "layers.0", "layers.1", "layers.2", "norm"])
    '"tokens", *(f"layers.{i}" for i in range(3)), "norm"'
    """
    found: list[tuple[str, int, int]] = []  # the name before the number, first and last number
    for name in names:
        head, _, tail = name.rpartition(".")
        number = int(tail) if head and tail.isdecimal() else None
        if number is None:
            found.append((name, -1, -1))
        elif found and found[-1][0] == head and found[-1][2] == number - 1:
            found[-1] = head, found[-1][1], number
        else:
            found.append((head, number, number))
    entries = []
    for head, first, last in found:
        if first < 0:
            entries.append(f'"{head}"')
        elif last - first < 2:
            entries += [f'"{head}.{number}"' for number in range(first, last + 1)]
        else:
            ends = f"{last + 1}" if first == 0 else f"{first}, {last + 1}"
            entries.append(f'*(f"{head}.{{i}}" for i in range({ends}))')
    return ", ".join(entries)
