"""The options and the training loop that resnet.py, llama.py, vit.py and unet.py share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import TypeAlias

import gpt_curve
from layouts import STRATEGIES, Layout, set_ranks
from tqdm import tqdm

import onefold as flow
from onefold import nn

Loss: TypeAlias = Callable[..., flow.Tensor]
Batches: TypeAlias = Iterator[tuple[flow.Tensor, ...]]
# The model, its optimizer, the loss of a batch, and the batches, without end.
Training: TypeAlias = tuple[nn.Module, flow.optim.Optimizer, Loss, Batches]


def parser(description: str | None, **sizes: int) -> argparse.ArgumentParser:
    """The options of every example, and those of this one's sizes with their defaults."""
    strategies = "\n".join(f"  {name:<8}{row[0]}" for name, row in STRATEGIES.items())
    found = argparse.ArgumentParser(
        description=description,
        epilog=f"strategies:\n{strategies}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = found.add_argument
    add("--strategy", choices=tuple(STRATEGIES), default="mixed", help="see below")
    add("--ranks", type=int, help="default: the launched world's, else 4")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--graph", action="store_true", help="capture the step as a graph")
    add("--lr", type=float, default=2e-3)
    add("--seed", type=int, default=0)
    add("--curve", metavar="PNG", help="draw the loss of every step into this file")
    for name, default in sizes.items():
        add(f"--{name}", type=int, default=default, help=f"default: {default}")
    return found


def parse(given: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """The options; ends the program with a message when there are too few processes."""
    args = given.parse_args(arguments)
    set_ranks(given, args, 4)
    return args


class TrainingGraph(nn.Graph):
    """One training step as a graph."""

    def __init__(self, model: nn.Module, optimizer: flow.optim.Optimizer, loss_of: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss_of = loss_of
        self.add_optimizer(optimizer)

    def build(self, *batch: flow.Tensor) -> flow.Tensor:
        loss = self.loss_of(*batch)
        loss.backward()
        return loss


def eager_step(optimizer: flow.optim.Optimizer, loss_of: Loss) -> Loss:
    """The same step, run at once."""

    def step(*batch: flow.Tensor) -> flow.Tensor:
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def train(
    args: argparse.Namespace, make: Callable[[argparse.Namespace, Layout], Training]
) -> tuple[nn.Module, list[float]]:
    """Train as the arguments say; the model, and the loss of every step."""
    flow.manual_seed(args.seed)
    model, optimizer, loss_of, batches = make(
        args, Layout.of(args.strategy, args.ranks, args.device)
    )
    graph = TrainingGraph(model, optimizer, loss_of)
    step = graph if args.graph else eager_step(optimizer, loss_of)
    losses = []
    first = flow.env.get_rank() == 0
    bar = tqdm(range(args.steps), unit="step", disable=not first)
    for _ in bar:
        losses.append(float(step(*next(batches))))
        bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
    if first and args.curve:
        gpt_curve.save(losses, args.curve, f"strategy {args.strategy}", "loss")
    return model, losses
