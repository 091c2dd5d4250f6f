"""The model of examples/gpt.py, its optimizer and its inputs, for benchmarks of graphs."""

from __future__ import annotations

import sys
from pathlib import Path

import onefold as flow

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import gpt
import gpt_stages

Training, eager_step = gpt.Training, gpt.eager_step


def model(
    strategy: str, ranks: int, layers: int, width: int, more: str = ""
) -> tuple[gpt.GPT, flow.optim.AdamW, list[gpt_stages.Stage]]:
    """The model, always with the same parameters, its optimizer, and where its stages are."""
    words = f"--strategy {strategy} --ranks {ranks} --layers {layers} --width {width} {more}"
    args = gpt.parse(words.split())
    layout = gpt_stages.stages(strategy, list(range(ranks)), "cpu")
    flow.manual_seed(0)
    made = gpt.GPT(args, layout)
    return made, flow.optim.AdamW(made.parameters(), lr=1e-4), layout


def graph(
    strategy: str, ranks: int, layers: int, width: int, schedule: str = "", micro_batches: int = 1
) -> tuple[Training, list[flow.Tensor]]:
    """The graph of a training step, and its inputs."""
    made, optimizer, layout = model(strategy, ranks, layers, width)
    inputs = [
        flow.randint(0, 256, (4 * micro_batches, 32), placement=stage.placement, sbp=stage.data)
        for stage in (layout[0], layout[-1])
    ]
    return Training(made, optimizer, micro_batches, schedule or None), inputs
