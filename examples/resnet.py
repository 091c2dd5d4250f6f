"""Train a ResNet-18 on real MNIST images under any parallelism.

    python examples/resnet.py --strategy mixed --ranks 4
    python examples/resnet.py --strategy pp --graph
    python -m onefold.distributed.launch --nproc_per_node 2 examples/resnet.py --strategy zero

The statistics of batch norm are those of the whole batch, so strategies differ by rounding only.
"""

from __future__ import annotations

import argparse

import mnist_images
import torch
from layouts import Layout
from train_loop import Batches, Training, parse as parse_options, parser, train

import onefold as flow
from onefold import nn


class BasicBlock(nn.Module):
    """Two convolutions with batch norm and a shortcut; the channels between may be split."""

    def __init__(self, inputs: int, width: int, stride: int, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False, **layout.columns)
        self.norm1 = nn.BatchNorm2d(width, **layout.columns)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False, **layout.rows)
        self.norm2 = nn.BatchNorm2d(width, **layout.whole)
        # Goyal et al. (2017): a block begins as its shortcut. Training is stabler then, and
        # rounding, which differs from layout to layout, moves no value across ReLU's kink.
        nn.init.zeros_(self.norm2.weight)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, width, 1, stride, bias=False, **layout.whole),
                nn.BatchNorm2d(width, **layout.whole),
            )

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        x = x.to_global(**self.layout.data)
        y = self.conv2(flow.relu(self.norm1(self.conv1(x))))
        return flow.relu(self.norm2(y) + self.shortcut(x))


class ResNet18(nn.Module):
    """Images (N, 1, 28, 28) to the scores of ten digits (N, 10)."""

    def __init__(self, width: int, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        first, last = layout.at(0, 8), layout.last
        self.conv = nn.Conv2d(1, width, 3, 2, 1, bias=False, **first.whole)
        self.norm = nn.BatchNorm2d(width, **first.whole)
        widths = [width << i // 2 for i in range(8)]
        self.blocks = nn.Sequential(
            *(
                BasicBlock(
                    widths[max(i - 1, 0)],
                    widths[i],
                    2 if i in (2, 4, 6) else 1,
                    layout.at(i, 8),
                )
                for i in range(8)
            )
        )
        self.head = nn.Linear(widths[-1], 10, **last.whole)

    def forward(self, images: flow.Tensor) -> flow.Tensor:
        x = self.blocks(flow.relu(self.norm(self.conv(images))))
        return self.head(x.mean((2, 3)).to_global(**self.layout.last.data))


def batches(args: argparse.Namespace, layout: Layout, data: mnist_images.Images) -> Batches:
    """Random images on the first ranks, and their labels on the last."""
    images, labels = map(torch.from_numpy, (data.train_images, data.train_labels))
    while True:
        chosen = flow.randint(0, len(labels), (args.batch,)).to_torch()
        yield (
            flow.tensor(images[chosen], **layout.data),
            flow.tensor(labels[chosen], **layout.last.data),
        )


def make(args: argparse.Namespace, layout: Layout) -> Training:
    model = ResNet18(args.width, layout)
    optimizer = flow.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    def loss_of(images: flow.Tensor, labels: flow.Tensor) -> flow.Tensor:
        return nn.functional.cross_entropy(model(images), labels)

    return model, optimizer, loss_of, batches(args, layout, mnist_images.load())


def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """The fraction of images that are recognized."""
    model.eval()
    with flow.no_grad():
        found = model(flow.tensor(images, **model.layout.data)).argmax(1).to_torch()
    model.train()
    return float((found == labels).float().mean())


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    given = parser(__doc__, steps=60, batch=64, width=8)
    given.set_defaults(lr=0.1)
    return parse_options(given, arguments)


def main() -> None:
    args = parse()
    model, losses = train(args, make)
    data = mnist_images.load()
    right = accuracy(model, *map(torch.from_numpy, (data.test_images, data.test_labels)))
    if flow.env.get_rank() == 0:
        print(f"{len(losses)} steps, last loss {losses[-1]:.3f}, test accuracy {100 * right:.1f}%")


if __name__ == "__main__":
    main()
