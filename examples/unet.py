"""Train a small diffusion model, a UNet that learns to take noise out of MNIST images.

    python examples/unet.py --strategy mixed --ranks 4 --picture digits.png
    python examples/unet.py --strategy pp --graph
    python -m onefold.distributed.launch --nproc_per_node 2 examples/unet.py --strategy dp

The noise depends on the seed and its place in the batch alone, so every strategy sees the same.
"""

from __future__ import annotations

import argparse
from math import log, pi

import mnist_images
import torch
from layouts import Layout
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from train_loop import Batches, Training, parse as parse_options, parser, train

import onefold as flow
from onefold import nn

F = nn.functional
GROUPS = 4


class Block(nn.Module):
    """Two convolutions and a shortcut; the time is added to the channels between them."""

    def __init__(self, inputs: int, width: int, times: int, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        self.norm1 = nn.GroupNorm(GROUPS, inputs, **layout.whole)
        self.conv1 = nn.Conv2d(inputs, width, 3, padding=1, **layout.columns)
        self.time = nn.Linear(times, width, **layout.columns)
        self.norm2 = nn.GroupNorm(GROUPS, width, **layout.columns)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, **layout.rows)
        self.shortcut = nn.Conv2d(inputs, width, 1, **layout.whole)

    def forward(self, x: flow.Tensor, time: flow.Tensor) -> flow.Tensor:
        x, time = x.to_global(**self.layout.data), time.to_global(**self.layout.data)
        y = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.conv2(F.silu(self.norm2(y))) + self.shortcut(x)


class UNet(nn.Module):
    """Noisy images (N, 1, 28, 28) and how noisy they are (N,), in [0, 1], to the noise in them."""

    def __init__(self, width: int, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        self.times = 2 * width
        blocks = 5
        at = [layout.at(i, blocks) for i in range(blocks)]
        self.first = nn.Conv2d(1, width, 3, padding=1, **layout.whole)
        self.down1 = Block(width, width, self.times, at[0])
        self.down2 = Block(width, 2 * width, self.times, at[1])
        self.middle = Block(2 * width, 2 * width, self.times, at[2])
        self.up2 = Block(4 * width, width, self.times, at[3])
        self.up1 = Block(2 * width, width, self.times, at[4])
        self.norm = nn.GroupNorm(GROUPS, width, **layout.last.whole)
        self.last = nn.Conv2d(width, 1, 3, padding=1, **layout.last.whole)

    def forward(self, x: flow.Tensor, noisy: flow.Tensor) -> flow.Tensor:
        time = waves(noisy, self.times)
        x1 = self.down1(self.first(x), time)
        x2 = self.down2(F.avg_pool2d(x1, 2), time)
        y = self.middle(F.avg_pool2d(x2, 2), time)
        y = self.up2(self.joined(self.up2, y, x2), time)
        y = self.up1(self.joined(self.up1, y, x1), time).to_global(**self.layout.last.data)
        return self.last(F.silu(self.norm(y)))

    @staticmethod
    def joined(block: Block, small: flow.Tensor, kept: flow.Tensor) -> flow.Tensor:
        """What a block on the way up takes: the small image made large, and that of its size."""
        large = F.interpolate(small.to_global(**block.layout.data), scale_factor=2)
        return flow.cat([large, kept.to_global(**block.layout.data)], 1)


def waves(noisy: flow.Tensor, count: int) -> flow.Tensor:
    """Numbers (N,) as sines and cosines of several frequencies (N, count)."""
    place = {"placement": noisy.placement, "sbp": [flow.sbp.broadcast] * noisy.placement.ndim}
    rates = flow.exp(log(1000) * flow.linspace(0, 1, count // 2, **place))
    angles = noisy[:, None] * rates
    return flow.cat([flow.sin(angles), flow.cos(angles)], 1)


def mixed_with(images: flow.Tensor, noise: flow.Tensor, noisy: flow.Tensor) -> flow.Tensor:
    """Images that are so noisy: from 0, the image, to 1, the noise."""
    angle = (noisy * (pi / 2))[:, None, None, None]
    return flow.cos(angle) * images + flow.sin(angle) * noise


def make(args: argparse.Namespace, layout: Layout) -> Training:
    model = UNet(args.width, layout)
    optimizer = flow.optim.AdamW(model.parameters(), lr=args.lr)

    def loss_of(images: flow.Tensor) -> flow.Tensor:
        noise = flow.randn(images.shape, **layout.data)
        noisy = flow.rand(images.shape[0], **layout.data)
        found = model(mixed_with(images, noise, noisy), noisy)
        return F.mse_loss(found, noise.to_global(**layout.last.data))

    def batches() -> Batches:
        images = torch.from_numpy(mnist_images.load().train_images)
        while True:
            chosen = flow.randint(0, len(images), (args.batch,)).to_torch()
            yield (flow.tensor(images[chosen], **layout.data),)

    return model, optimizer, loss_of, batches()


def sample(model: UNet, count: int, steps: int = 20) -> torch.Tensor:
    """Images that the model makes of noise, in steps from all noise to none."""
    place = model.layout.replicated
    x = flow.randn(count, 1, 28, 28, **place)
    with flow.no_grad():
        for step in range(steps, 0, -1):
            now, then = (0.98 * each / steps for each in (step, step - 1))
            noisy = flow.full((count,), now, **place)
            noise = model(x, noisy).to_global(**place)
            angle = torch.tensor([now, then]) * (pi / 2)
            (cos, next_cos), (sin, next_sin) = angle.cos().tolist(), angle.sin().tolist()
            image = ((x - sin * noise) / cos).clamp(-0.5, 3)  # the values of the images
            x = next_cos * image + next_sin * noise
    return x.to_torch()


def draw(images: torch.Tensor, path: str) -> None:
    """Draw images side by side into a PNG file."""
    figure = Figure(figsize=(len(images), 1.2))
    FigureCanvasAgg(figure)
    for axes, image in zip(figure.subplots(1, len(images), squeeze=False)[0], images, strict=True):
        axes.imshow(image[0].numpy(), cmap="gray")
        axes.axis("off")
    figure.savefig(path, dpi=120)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    given = parser(__doc__, steps=60, batch=32, width=16)
    given.add_argument("--picture", metavar="PNG", help="draw 8 made images into this file")
    return parse_options(given, arguments)


def main() -> None:
    args = parse()
    model, losses = train(args, make)
    images = sample(model, 8) if args.picture else None
    if flow.env.get_rank() == 0:
        print(f"{len(losses)} steps, last loss {losses[-1]:.3f}")
        if images is not None:
            draw(images, args.picture)
            print(f"8 images drawn in {args.picture}")


if __name__ == "__main__":
    main()
