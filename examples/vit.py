"""Train a small vision transformer on real MNIST images under any parallelism.

    python examples/vit.py --strategy mixed --ranks 4
    python examples/vit.py --strategy pp --graph
    python -m onefold.distributed.launch --nproc_per_node 2 examples/vit.py --strategy tp

Dropout masks depend on the seed alone, so the losses are the same everywhere.
"""

from __future__ import annotations

import argparse

import torch
from layouts import Layout
from mnist_images import load
from resnet import accuracy, batches
from train_loop import Training, parse as parse_options, parser, train

import onefold as flow
from onefold import nn

F = nn.functional


class Attention(nn.Module):
    """Every patch looks at every other; the heads are split where the weights are."""

    def __init__(self, width: int, heads: int, layout: Layout) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, width, **layout.columns) for _ in range(3))
        self.out = nn.Linear(width, width, **layout.rows)

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (f(x).view(*shape).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and a two-layer network, each after a norm and with a residual connection."""

    def __init__(self, args: argparse.Namespace, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        width = args.width
        self.norm1 = nn.LayerNorm(width, **layout.whole)
        self.attention = Attention(width, args.heads, layout)
        self.norm2 = nn.LayerNorm(width, **layout.whole)
        self.up = nn.Linear(width, 4 * width, **layout.columns)
        self.down = nn.Linear(4 * width, width, **layout.rows)
        self.dropout = nn.Dropout(args.dropout)

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        x = x.to_global(**self.layout.data)
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


class VisionTransformer(nn.Module):
    """Images (N, 1, 28, 28), cut into patches, to the scores of ten digits (N, 10)."""

    def __init__(self, args: argparse.Namespace, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        width, count = args.width, (28 // args.patch) ** 2
        self.patches = nn.Conv2d(1, width, args.patch, args.patch, **layout.whole)
        self.token = nn.Parameter(flow.zeros(1, 1, width, **layout.replicated))
        self.places = nn.Parameter(0.02 * flow.randn(1, count + 1, width, **layout.replicated))
        self.blocks = nn.Sequential(
            *(Block(args, layout.at(i, args.layers)) for i in range(args.layers))
        )
        self.norm = nn.LayerNorm(width, **layout.last.whole)
        self.head = nn.Linear(width, 10, **layout.last.whole)

    def forward(self, images: flow.Tensor) -> flow.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = flow.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x)[:, 0].to_global(**self.layout.last.data)))


def make(args: argparse.Namespace, layout: Layout) -> Training:
    model = VisionTransformer(args, layout)
    optimizer = flow.optim.AdamW(model.parameters(), lr=args.lr)

    def loss_of(images: flow.Tensor, labels: flow.Tensor) -> flow.Tensor:
        return F.cross_entropy(model(images), labels, label_smoothing=0.1)

    return model, optimizer, loss_of, batches(args, layout, load())


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    given = parser(__doc__, steps=100, batch=64, layers=4, width=64, heads=4, patch=7)
    given.add_argument("--dropout", type=float, default=0.1, help="default: 0.1")
    return parse_options(given, arguments)


def main() -> None:
    args = parse()
    model, losses = train(args, make)
    right = accuracy(model, *map(torch.from_numpy, (load().test_images, load().test_labels)))
    if flow.env.get_rank() == 0:
        print(f"{len(losses)} steps, last loss {losses[-1]:.3f}, test accuracy {100 * right:.1f}%")


if __name__ == "__main__":
    main()
