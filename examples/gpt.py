"""Train a small GPT on the bytes of Python's own standard library under any parallelism.

    python examples/gpt.py --strategy mixed --ranks 4 --graph
    python examples/gpt.py --strategy pp --graph --schedule zb-h1 --micro-batches 8
    python -m onefold.distributed.launch --nproc_per_node 4 examples/gpt.py --strategy tp

The same seed gives the same loss curve under every strategy, on virtual ranks or processes, eagerly
or as a graph, for any schedule and number of micro-batches, with or without checkpointing.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence

import gpt_curve
import gpt_data
import gpt_options
import numpy as np
import torch
from gpt_stages import STRATEGIES, Stage, stage_of_layer, stages, table
from tqdm import tqdm

import onefold as flow
from onefold import nn
from onefold.graph.schedules.named_schedules import make
from onefold.graph.schedules.picture import draw
from onefold.graph.schedules.simulate import Times, simulate


class Attention(nn.Module):
    """Causal self-attention; the heads are split where the weights are."""

    def __init__(self, width: int, heads: int, stage: Stage) -> None:
        super().__init__()
        where = stage.placement
        self.heads = heads
        self.q = nn.Linear(width, width, placement=where, sbp=stage.columns)
        self.k = nn.Linear(width, width, placement=where, sbp=stage.columns)
        self.v = nn.Linear(width, width, placement=where, sbp=stage.columns)
        self.out = nn.Linear(width, width, placement=where, sbp=stage.rows)

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (f(x).view(*shape).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and a two-layer network, each after a norm and with a residual connection."""

    def __init__(self, width: int, heads: int, dropout: float, stage: Stage) -> None:
        super().__init__()
        where = stage.placement
        self.norm1 = nn.LayerNorm(width, placement=where, sbp=stage.whole)
        self.attention = Attention(width, heads, stage)
        self.norm2 = nn.LayerNorm(width, placement=where, sbp=stage.whole)
        self.up = nn.Linear(width, 4 * width, placement=where, sbp=stage.columns)
        self.down = nn.Linear(4 * width, width, placement=where, sbp=stage.rows)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.down(flow.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    """Tokens (batch, length) to the scores of the next token (batch, length, vocabulary)."""

    def __init__(
        self,
        args: argparse.Namespace,
        layout: list[Stage],
        vocabulary: int = gpt_data.VOCABULARY,
    ) -> None:
        super().__init__()
        self.layout = layout
        first, last = layout[0], layout[-1]
        self.of_layer = stage_of_layer(args.layers, len(layout))
        self.checkpoint = args.checkpoint and not args.graph  # a graph has a setting for it
        width = args.width
        at_first = {"placement": first.placement, "sbp": first.whole}
        self.tokens = nn.Embedding(vocabulary, width, **at_first)
        self.places = nn.Embedding(args.length, width, **at_first)
        self.blocks = nn.ModuleList(
            Block(width, args.heads, args.dropout, layout[stage]) for stage in self.of_layer
        )
        self.norm = nn.LayerNorm(width, placement=last.placement, sbp=last.whole)
        self.head = nn.Linear(width, vocabulary, placement=last.placement, sbp=last.columns)

    def forward(self, tokens: flow.Tensor) -> flow.Tensor:
        first = self.layout[0]
        place = flow.arange(tokens.shape[1], placement=first.placement, sbp=first.replicated)
        x = self.tokens(tokens) + self.places(place)
        for block, stage in zip(self.blocks, self.of_layer, strict=True):
            x = x.to_global(self.layout[stage].placement, self.layout[stage].data)
            x = flow.checkpoint.checkpoint(block, x) if self.checkpoint else block(x)
        last = self.layout[-1]
        return self.head(self.norm(x.to_global(last.placement, last.data)))

    def set_stages(self) -> None:
        """Say which stage each module is, for graphs: the same as where it lives."""
        last = len(self.layout) - 1
        ends = [(self.tokens, 0), (self.places, 0), (self.norm, last), (self.head, last)]
        for module, stage in [*zip(self.blocks, self.of_layer, strict=True), *ends]:
            view = module.to(nn.graph.GraphModule)
            view.set_stage(stage, self.layout[stage].placement)


Step = Callable[[flow.Tensor, flow.Tensor], flow.Tensor]


def loss_of(model: GPT, tokens: flow.Tensor, following: flow.Tensor) -> flow.Tensor:
    scores = model(tokens)
    return nn.functional.cross_entropy(scores.view(-1, scores.shape[-1]), following.reshape(-1))


class Training(nn.Graph):
    """One training step as a graph."""

    def __init__(
        self,
        model: GPT,
        optimizer: flow.optim.Optimizer,
        micro_batches: int,
        schedule: str | None = None,
        checkpoint: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)
        self.config.set_gradient_accumulation_steps(micro_batches)
        if schedule is not None:
            model.set_stages()
            self.config.set_schedule(schedule)
        for block in model.blocks:
            block.to(nn.graph.GraphModule).activation_checkpointing = checkpoint

    def build(self, bytes_: flow.Tensor, following: flow.Tensor) -> flow.Tensor:
        loss = loss_of(self.model, bytes_, following)
        loss.backward()
        return loss


def eager_step(model: GPT, optimizer: flow.optim.Optimizer) -> Step:
    """The same step, run at once."""

    def step(bytes_: flow.Tensor, following: flow.Tensor) -> flow.Tensor:
        loss = loss_of(model, bytes_, following)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def layout_of(args: argparse.Namespace, strategy: str) -> list[Stage]:
    """The stages of a strategy on as many ranks as the arguments say."""
    ranks = list(range(args.ranks))
    return stages(strategy, ranks, args.device, args.chunks, turns=args.schedule == "zb-v")


def draw_schedule(args: argparse.Namespace) -> None:
    """Draw which ranks work when, if a backward takes as long as two forwards."""
    layout = layout_of(args, args.strategy)
    rows = list(dict.fromkeys(", ".join(map(str, stage.ranks)) for stage in layout))
    schedule = make(args.schedule, len(layout), args.micro_batches, len(rows))
    draw(simulate(schedule, Times()), args.schedule_picture, [f"ranks {row}" for row in rows])
    print(f"schedule drawn in {args.schedule_picture}")


def train(args: argparse.Namespace, text: np.ndarray) -> tuple[GPT, list[float]]:
    """Train as the arguments say; the model, and the loss of every step."""
    layout = layout_of(args, args.strategy)
    flow.manual_seed(args.seed)
    model = GPT(args, layout)
    optimizer = flow.optim.AdamW(model.parameters(), lr=args.lr)
    step: Step = eager_step(model, optimizer)
    if args.graph:
        step = Training(model, optimizer, args.micro_batches, args.schedule, args.checkpoint)
    first, last = layout[0], layout[-1]
    losses = []
    bar = tqdm(range(args.steps), unit="step", disable=flow.env.get_rank() != 0)
    start = time.perf_counter()
    for index in bar:
        bytes_, following = map(torch.from_numpy, gpt_data.batch(text, args.batch, args.length))
        loss = step(
            flow.tensor(bytes_, placement=first.placement, sbp=first.data),
            flow.tensor(following, placement=last.placement, sbp=last.data),
        )
        losses.append(float(loss.mean()))
        speed = (index + 1) * args.batch * args.length / (time.perf_counter() - start)
        bar.set_postfix(loss=f"{losses[-1]:.3f}", tokens_per_s=f"{speed:.0f}", refresh=False)
    return model, losses


def generate(
    model: GPT, start: Sequence[int], count: int, length: int, temperature: float = 1.0
) -> list[int]:
    """`start` and `count` tokens that the model draws after it, likely ones below temperature 1."""
    first = model.layout[0]
    tokens = list(start)
    model.eval()
    with flow.no_grad():
        for _ in range(count):
            window = torch.tensor([tokens[-length:]])
            scores = model(flow.tensor(window, placement=first.placement, sbp=first.replicated))
            cumulative = (
                flow.softmax(scores[0, -1] / temperature, 0).numpy().astype(np.float64).cumsum()
            )
            drawn = np.searchsorted(cumulative, flow.rand(()).item() * cumulative[-1])
            tokens.append(min(int(drawn), len(cumulative) - 1))
    model.train()
    return tokens


def readable(text: bytes) -> str:
    """The text, without what would move a terminal's cursor or ring its bell."""
    return "".join(
        each if each.isprintable() or each in "\n\t" else "\N{REPLACEMENT CHARACTER}"
        for each in text.decode(errors="replace")
    )


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    return gpt_options.parse(arguments, __doc__)


def main() -> None:
    args = parse()
    first = flow.env.get_rank() == 0
    if args.list:
        layouts = {name: layout_of(args, name) for name in STRATEGIES}  # by every process
        if first:
            print(table(layouts, args.layers))
        return
    if args.schedule_picture and first:
        draw_schedule(args)
    model, losses = train(args, gpt_data.load(args.data))
    text = bytes(generate(model, b"def ", args.sample, args.length))
    if first:
        print(f"{len(losses)} steps, last loss {losses[-1]:.3f}; drawn from the model:")
        print(readable(text))
        if args.losses:
            with open(args.losses, "w") as file:
                json.dump(losses, file)
        if args.curve:
            gpt_curve.save(losses, args.curve, f"GPT, strategy {args.strategy}")
            print(f"loss curve drawn in {args.curve}")


if __name__ == "__main__":
    main()
