"""GPT-2 and a Llama, each written once for torch, Liger and Onefold: the loss of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

import torch

Tensor: TypeAlias = torch.Tensor  # or one of Onefold, which has the same methods
Model: TypeAlias = torch.nn.Module  # or one of Onefold
Size: TypeAlias = dict[str, int]
Where: TypeAlias = dict[str, Any]  # device=, or placement= and sbp=
STD = 0.02  # of the weights, as in GPT-2


@dataclass(frozen=True)
class Library:
    """Torch or Onefold, and how parts of a model are computed that have several ways."""

    flow: ModuleType
    where: Where
    rms_norm: Callable[[Tensor, Tensor], Tensor]
    rotary: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]  # of queries and keys
    gated: Callable[[Tensor, Tensor], Tensor]  # silu(gate) * up
    loss: Callable[[Tensor, Tensor, Tensor], Tensor]  # of rows, the head's weight and targets


def torch_library(device: str) -> Library:
    """Plain torch, as it is written for torch.compile."""
    F = torch.nn.functional

    def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        y = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
        return y.to(x.dtype)

    return Library(
        torch,
        {"device": device},
        lambda x, w: F.rms_norm(x, w.shape, w, 1e-5),
        lambda q, k, cos, sin: (turned(q, cos, sin), turned(k, cos, sin)),
        lambda gate, up: F.silu(gate) * up,
        lambda x, w, target: F.cross_entropy(F.linear(x, w).float(), target),
    )


def liger_library(device: str) -> Library:
    """Torch with the functions of Liger. Raises ModuleNotFoundError where it is not installed."""
    liger = import_module("liger_kernel.transformers.functional")

    def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        tables = (torch.cat((table, table), -1)[None].to(q.dtype) for table in (cos, sin))
        found: tuple[Tensor, Tensor] = liger.liger_rope(q, k, *tables)
        return found

    def loss(x: Tensor, w: Tensor, target: Tensor) -> Tensor:
        found = liger.liger_fused_linear_cross_entropy(x, w.to(x.dtype), target)
        return found[0] if isinstance(found, tuple) else found

    return Library(
        torch,
        {"device": device},
        lambda x, w: liger.liger_rms_norm(x, w, 1e-5),
        rotary,
        liger.liger_swiglu,
        loss,
    )


def onefold_library(flow: ModuleType, device: str) -> Library:
    """Onefold, on one rank."""
    F = flow.nn.functional
    return Library(
        flow,
        {"placement": flow.placement(device, [0]), "sbp": flow.sbp.broadcast},
        lambda x, w: F.rms_norm(x, w.shape, w, 1e-5),
        lambda q, k, cos, sin: (F.rotary(q, cos, sin), F.rotary(k, cos, sin)),
        lambda gate, up: F.silu(gate) * up,
        F.linear_cross_entropy,
    )


def gpt2(lib: Library, size: Size) -> Model:
    """GPT-2 (Radford et al., 2019), whose head is the embedding."""
    nn, width, heads = lib.flow.nn, size["width"], size["heads"]

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1 = nn.LayerNorm(width, **lib.where)
            self.qkv = nn.Linear(width, 3 * width, **lib.where)
            self.out = nn.Linear(width, width, **lib.where)
            self.norm2 = nn.LayerNorm(width, **lib.where)
            self.up = nn.Linear(width, 4 * width, **lib.where)
            self.down = nn.Linear(4 * width, width, **lib.where)

        def forward(self, x: Tensor) -> Tensor:
            batch, length, _ = x.shape
            q, k, v = (
                part.view(batch, length, heads, width // heads).transpose(1, 2)
                for part in self.qkv(self.norm1(x)).split(width, 2)
            )
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
            h = nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh")
            return x + self.down(h)

    class GPT2(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(size["vocabulary"], width, **lib.where)
            self.places = nn.Embedding(size["length"], width, **lib.where)
            self.blocks = nn.ModuleList(Block() for _ in range(size["layers"]))
            self.norm = nn.LayerNorm(width, **lib.where)

        def forward(self, tokens: Tensor, following: Tensor) -> Tensor:
            x = self.tokens(tokens) + self.places.weight  # (batch, length, width)
            for block in self.blocks:
                x = block(x)
            return lib.loss(self.norm(x).view(-1, width), self.tokens.weight, following.view(-1))

    return GPT2()


def llama(lib: Library, size: Size) -> Model:
    """Llama 3.2 (2024): RMSNorm, rotary embeddings, grouped queries and SwiGLU."""
    nn, width, heads, kv_heads = lib.flow.nn, size["width"], size["heads"], size["kv_heads"]
    each = width // heads

    def linear(features: int, results: int) -> Model:
        return nn.Linear(features, results, bias=False, **lib.where)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1 = nn.Parameter(lib.flow.ones(width, **lib.where))
            self.q, self.out = linear(width, width), linear(width, width)
            self.k, self.v = linear(width, kv_heads * each), linear(width, kv_heads * each)
            self.norm2 = nn.Parameter(lib.flow.ones(width, **lib.where))
            self.gate, self.up = linear(width, size["hidden"]), linear(width, size["hidden"])
            self.down = linear(size["hidden"], width)

        def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
            batch, length, _ = x.shape
            h = lib.rms_norm(x, self.norm1)
            q = self.q(h).view(batch, length, heads, each).transpose(1, 2)
            k, v = (
                layer(h).view(batch, length, kv_heads, each).transpose(1, 2)
                for layer in (self.k, self.v)
            )
            q, k = lib.rotary(q, k, cos, sin)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
            h = lib.rms_norm(x, self.norm2)
            return x + self.down(lib.gated(self.gate(h), self.up(h)))

    class Llama(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(size["vocabulary"], width, **lib.where)
            self.blocks = nn.ModuleList(Block() for _ in range(size["layers"]))
            self.norm = nn.Parameter(lib.flow.ones(width, **lib.where))

        def forward(self, tokens: Tensor, following: Tensor) -> Tensor:
            x = self.tokens(tokens)
            cos, sin = tables(lib, size["length"], each)
            for block in self.blocks:
                x = block(x, cos, sin)
            rows = lib.rms_norm(x, self.norm).view(-1, width)
            return lib.loss(rows, self.tokens.weight, following.view(-1))

    return Llama()


def tables(lib: Library, length: int, features: int) -> tuple[Tensor, Tensor]:
    """The cosines and sines of the angles at all positions (length, features / 2)."""
    flow = lib.flow
    rates = 500000.0 ** (-flow.arange(0, features, 2, dtype=flow.float32, **lib.where) / features)
    angles = flow.arange(length, dtype=flow.float32, **lib.where)[:, None] * rates
    return flow.cos(angles), flow.sin(angles)


def weights(model: Model, device: str) -> dict[str, torch.Tensor]:
    """The same random matrices for every library, by the names of the parameters; biases are 0."""
    draws = torch.Generator(device).manual_seed(0)
    return {
        name: STD * torch.randn(tuple(p.shape), generator=draws, device=device)
        if p.ndim == 2
        else torch.zeros(tuple(p.shape), device=device)
        for name, p in sorted(model.named_parameters())
        if p.ndim == 2 or name.endswith("bias")
    }


def batch_of(size: Size, batch: int) -> list[torch.Tensor]:
    """Tokens, and those that follow them."""
    draws = torch.Generator("cpu").manual_seed(1)
    shape = (batch, size["length"] + 1)
    text = torch.randint(0, size["vocabulary"], shape, generator=draws, device="cpu")
    return [text[:, :-1].contiguous(), text[:, 1:].contiguous()]
