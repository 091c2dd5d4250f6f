"""A ResNet-18, a graph network and a GPT, each written once for torch and Onefold alike."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TypeAlias

import torch

Tensor: TypeAlias = torch.Tensor  # or one of Onefold, which has the same methods
Model: TypeAlias = torch.nn.Module  # or one of Onefold
Size: TypeAlias = dict[str, int]


def gpt(lib: ModuleType, size: Size) -> Model:
    """The GPT of examples/gpt.py: blocks of causal attention and a two-layer network."""
    nn = lib.nn
    width, heads, length = size["width"], size["heads"], size["length"]

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def attention(self, x: Tensor) -> Tensor:
            shape = (*x.shape[:2], heads, width // heads)
            q, k, v = (f(x).view(*shape).transpose(1, 2) for f in (self.q, self.k, self.v))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(*x.shape))

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attention(self.norm1(x))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(Block() for _ in range(size["layers"]))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

        def forward(self, bytes_: Tensor, places: Tensor) -> Tensor:
            x = self.tokens(bytes_) + self.places(places)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x)).view(-1, 256)

    return GPT()


def gpt_data(size: Size) -> list[torch.Tensor]:
    """Bytes, their places, and the bytes that follow."""
    shape = (size["batch"], size["length"])
    bytes_, following = (torch.randint(0, 256, shape) for _ in range(2))
    return [bytes_, torch.arange(size["length"]), following.view(-1)]


def resnet(lib: ModuleType, size: Size) -> Model:
    """ResNet-18 (He et al., 2015) for images of any size."""
    nn = lib.nn

    class BatchNorm(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(lib.ones(channels))
            self.bias = nn.Parameter(lib.zeros(channels))
            self.register_buffer("mean", lib.zeros(channels))
            self.register_buffer("variance", lib.ones(channels))

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.batch_norm(
                x, self.mean, self.variance, self.weight, self.bias, self.training
            )

    class Block(nn.Module):
        def __init__(self, before: int, channels: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
            self.norm1 = BatchNorm(channels)
            self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
            self.norm2 = BatchNorm(channels)
            self.shortcut = nn.Identity()
            if stride != 1:
                conv = nn.Conv2d(before, channels, 1, stride, bias=False)
                self.shortcut = nn.Sequential(conv, BatchNorm(channels))

        def forward(self, x: Tensor) -> Tensor:
            y = nn.functional.relu(self.norm1(self.conv1(x)))
            return nn.functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
            self.norm = BatchNorm(64)
            self.pool = nn.MaxPool2d(3, 2, 1)
            sizes = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
            self.blocks = nn.Sequential()
            for before, channels, stride in sizes:
                for block in (Block(before, channels, stride), Block(channels, channels, 1)):
                    self.blocks.append(block)
            self.head = nn.Linear(512, 1000)

        def forward(self, images: Tensor) -> Tensor:
            x = self.pool(nn.functional.relu(self.norm(self.conv(images))))
            return self.head(nn.functional.adaptive_avg_pool2d(self.blocks(x), 1).flatten(1))

    return ResNet()


def resnet_data(size: Size) -> list[torch.Tensor]:
    """Images and classes."""
    images = torch.randn(size["batch"], 3, size["side"], size["side"])
    return [images, torch.randint(0, 1000, (size["batch"],))]


def graph_network(lib: ModuleType, size: Size) -> Model:
    """Messages along edges, added where they end: by index_add, then by scatter_add."""
    nn = lib.nn
    width = size["width"]

    class Layer(nn.Module):
        def __init__(self, scatters: bool) -> None:
            super().__init__()
            self.message, self.update = nn.Linear(width, width), nn.Linear(2 * width, width)
            self.norm = nn.LayerNorm(width)
            self.scatters = scatters

        def forward(self, x: Tensor, start: Tensor, end: Tensor) -> Tensor:
            messages = nn.functional.relu(self.message(x.index_select(0, start)))
            if self.scatters:
                index = end.view(-1, 1).expand(-1, width)
                found = lib.zeros_like(x).scatter_add(0, index, messages)
            else:
                found = lib.zeros_like(x).index_add(0, end, messages)
            return x + self.norm(nn.functional.relu(self.update(lib.cat([x, found], 1))))

    class GraphNetwork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter = nn.Linear(16, width)
            self.layers = nn.ModuleList(Layer(bool(i % 2)) for i in range(size["layers"]))
            self.head = nn.Linear(width, 10)

        def forward(self, nodes: Tensor, start: Tensor, end: Tensor) -> Tensor:
            x = self.enter(nodes)
            for layer in self.layers:
                x = layer(x, start, end)
            return self.head(x)

    return GraphNetwork()


def graph_data(size: Size) -> list[torch.Tensor]:
    """Nodes, where edges start and end, and the nodes' classes."""
    nodes, edges = size["nodes"], size["edges"]
    start, end = (torch.randint(0, nodes, (edges,)) for _ in range(2))
    return [torch.randn(nodes, 16), start, end, torch.randint(0, 10, (nodes,))]


# name: (model, data, sizes); the last of the data is what the scores are compared with.
Maker: TypeAlias = Callable[[ModuleType, Size], Model]
Data: TypeAlias = Callable[[Size], list[torch.Tensor]]
MODELS: dict[str, tuple[Maker, Data, list[Size]]] = {
    "GPT": (
        gpt,
        gpt_data,
        [
            {"layers": 4, "width": 64, "heads": 4, "batch": 4, "length": 32},
            {"layers": 4, "width": 128, "heads": 4, "batch": 8, "length": 64},
        ],
    ),
    "ResNet-18": (resnet, resnet_data, [{"batch": 2, "side": 64}, {"batch": 8, "side": 64}]),
    "graph network": (
        graph_network,
        graph_data,
        [
            {"layers": 4, "width": 32, "nodes": 256, "edges": 1024},
            {"layers": 4, "width": 64, "nodes": 2048, "edges": 8192},
        ],
    ),
}
