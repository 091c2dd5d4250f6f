"""Train a small GPT on the bytes of Python's own standard library under any parallelism.

    python examples/gpt.py --strategy mixed --ranks 4 --graph
    python -m onefold.distributed.launch --nproc_per_node 4 examples/gpt.py --strategy tp

The same seed gives the same loss curve under every strategy, on virtual ranks or processes, eagerly
or as a graph, for any number of micro-batches.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import gpt_curve
import gpt_data
import numpy as np
import torch
from tqdm import tqdm

import onefold as flow
from onefold import nn

B, S0, S1 = flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1)
STRATEGIES = ("single", "dp", "tp", "pp", "mixed")


@dataclass(frozen=True)
class Stage:
    """Where some of the layers live, and how they are laid out there."""

    placement: flow.placement
    data: flow.sbp.sbp  # of activations (batch, length, channels)
    columns: flow.sbp.sbp  # of weights (out, in) whose outputs may be split
    rows: flow.sbp.sbp  # of weights (out, in) that take those

    @staticmethod
    def data_parallel(placement: flow.placement) -> Stage:
        return Stage(placement, S0, B, B)

    @staticmethod
    def tensor_parallel(placement: flow.placement) -> Stage:
        return Stage(placement, B, S0, S1)


def stages(strategy: str, ranks: list[int], device: str) -> list[Stage]:
    """The stages of a strategy on these ranks, in the order of the layers."""
    every = flow.placement(device, ranks)
    half = len(ranks) // 2
    if strategy == "single":
        return [Stage.data_parallel(flow.placement(device, ranks[:1]))]
    if strategy == "dp":
        return [Stage.data_parallel(every)]
    if strategy == "tp":
        return [Stage.tensor_parallel(every)]
    if strategy == "pp":
        return [Stage.data_parallel(flow.placement(device, [rank])) for rank in ranks]
    first, second = ranks[:half] or ranks, ranks[half:]
    return [
        Stage.data_parallel(flow.placement(device, first)),
        Stage.tensor_parallel(flow.placement(device, second)),
    ]


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
    """Attention and a two-layer network, each behind a norm and beside a shortcut."""

    def __init__(self, width: int, heads: int, dropout: float, stage: Stage) -> None:
        super().__init__()
        where = stage.placement
        self.norm1 = nn.LayerNorm(width, placement=where, sbp=B)
        self.attention = Attention(width, heads, stage)
        self.norm2 = nn.LayerNorm(width, placement=where, sbp=B)
        self.up = nn.Linear(width, 4 * width, placement=where, sbp=stage.columns)
        self.down = nn.Linear(4 * width, width, placement=where, sbp=stage.rows)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.down(flow.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    """Bytes (batch, length) to the scores of the next byte (batch, length, 256)."""

    def __init__(self, args: argparse.Namespace, layout: list[Stage]) -> None:
        super().__init__()
        self.layout = layout
        first, last = layout[0], layout[-1]
        of_layer = [layout[i * len(layout) // args.layers] for i in range(args.layers)]
        self.of_layer = of_layer
        width, vocabulary = args.width, gpt_data.VOCABULARY
        self.tokens = nn.Embedding(vocabulary, width, placement=first.placement, sbp=B)
        self.places = nn.Embedding(args.length, width, placement=first.placement, sbp=B)
        self.blocks = nn.ModuleList(
            Block(width, args.heads, args.dropout, stage) for stage in of_layer
        )
        self.norm = nn.LayerNorm(width, placement=last.placement, sbp=B)
        self.head = nn.Linear(width, vocabulary, placement=last.placement, sbp=last.columns)

    def forward(self, bytes_: flow.Tensor) -> flow.Tensor:
        place = flow.arange(bytes_.shape[1], placement=self.layout[0].placement, sbp=B)
        x = self.tokens(bytes_) + self.places(place)
        for block, stage in zip(self.blocks, self.of_layer, strict=True):
            x = block(x.to_global(stage.placement, stage.data))
        last = self.layout[-1]
        return self.head(self.norm(x.to_global(last.placement, last.data)))


Step = Callable[[flow.Tensor, flow.Tensor], flow.Tensor]


def loss_of(model: GPT, bytes_: flow.Tensor, following: flow.Tensor) -> flow.Tensor:
    scores = model(bytes_)
    return nn.functional.cross_entropy(scores.view(-1, scores.shape[-1]), following.reshape(-1))


class Training(nn.Graph):
    """One training step as a graph."""

    def __init__(self, model: GPT, optimizer: flow.optim.Optimizer, micro_batches: int) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)
        self.config.set_gradient_accumulation_steps(micro_batches)

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


def train(args: argparse.Namespace, text: np.ndarray) -> tuple[GPT, list[float]]:
    """Train as the arguments say; the model, and the loss of every step."""
    ranks = list(range(1 if args.strategy == "single" else args.ranks))
    layout = stages(args.strategy, ranks, args.device)
    flow.manual_seed(args.seed)
    model = GPT(args, layout)
    optimizer = flow.optim.AdamW(model.parameters(), lr=args.lr)
    step: Step = eager_step(model, optimizer)
    if args.graph:
        step = Training(model, optimizer, args.micro_batches)
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


def sample(model: GPT, start: bytes, count: int, length: int) -> bytes:
    """`start` and `count` bytes that the model draws after it."""
    first = model.layout[0].placement
    text = list(start)
    model.eval()
    with flow.no_grad():
        for _ in range(count):
            window = torch.tensor([text[-length:]])
            scores = model(flow.tensor(window, placement=first, sbp=B))
            chances = flow.softmax(scores[0, -1], 0).numpy().astype(np.float64).cumsum()
            drawn = np.searchsorted(chances, flow.rand(()).item() * chances[-1])
            text.append(min(int(drawn), gpt_data.VOCABULARY - 1))
    model.train()
    return bytes(text)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strategy", choices=STRATEGIES, default="mixed")
    parser.add_argument("--ranks", type=int, help="default: the launched world's, else 4")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--graph", action="store_true", help="capture the step as a graph")
    parser.add_argument("--micro-batches", type=int, default=1, help="per step (needs --graph)")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=64, help="bytes seen at once")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", help="folder of .py files (default: the standard library)")
    parser.add_argument("--sample", type=int, default=200, help="bytes to draw at the end")
    parser.add_argument("--curve", default="gpt_loss.png", help="where to draw it ('': nowhere)")
    parser.add_argument("--losses", help="write the loss of every step to this JSON file")
    args = parser.parse_args(arguments)
    if args.micro_batches != 1 and not args.graph:
        parser.error("--micro-batches needs --graph")
    if args.width % args.heads:
        parser.error(f"--width {args.width} must be divisible by --heads {args.heads}")
    launched = flow.env.get_world_size() if flow.env.is_launched() else None
    args.ranks = args.ranks or launched or 4
    if launched is not None and args.ranks > launched:
        parser.error(f"--ranks {args.ranks} needs so many processes, but {launched} were launched")
    return args


def main() -> None:
    args = parse()
    model, losses = train(args, gpt_data.load(args.data))
    text = sample(model, b"def ", args.sample, args.length)
    if flow.env.get_rank() == 0:
        print(f"{len(losses)} steps, last loss {losses[-1]:.3f}; drawn from the model:")
        print(text.decode(errors="replace"))
        if args.losses:
            with open(args.losses, "w") as file:
                json.dump(losses, file)
        if args.curve:
            gpt_curve.save(losses, args.curve, f"GPT, strategy {args.strategy}")
            print(f"loss curve drawn in {args.curve}")


if __name__ == "__main__":
    main()
