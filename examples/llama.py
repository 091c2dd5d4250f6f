"""Train a small Llama on the bytes of Python's own standard library, and let it write.

    python examples/llama.py --strategy mixed --ranks 4
    python examples/llama.py --strategy pp --graph
    python -m onefold.distributed.launch --nproc_per_node 2 examples/llama.py --strategy tp

RMSNorm, rotary embeddings, grouped-query attention and SwiGLU. It writes with a cache of keys and
values, which are laid out as the heads are; the text is the one that it writes without.
"""

from __future__ import annotations

import argparse
from typing import TypeAlias

import gpt_data
import torch
from gpt import readable
from layouts import Layout
from train_loop import Batches, Training, parse as parse_options, parser, train

import onefold as flow
from onefold import nn

F = nn.functional
KeysAndValues: TypeAlias = "tuple[flow.Tensor, flow.Tensor]"  # (batch, heads, length, features)
Cache: TypeAlias = "list[KeysAndValues | None]"  # by layer


class Attention(nn.Module):
    """Causal self-attention in which several heads of queries share one of keys and values."""

    def __init__(self, width: int, heads: int, kv_heads: int, layout: Layout) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.q = nn.Linear(width, width, bias=False, **layout.columns)
        self.k = nn.Linear(width, kv_heads * self.size, bias=False, **layout.columns)
        self.v = nn.Linear(width, kv_heads * self.size, bias=False, **layout.columns)
        self.out = nn.Linear(width, width, bias=False, **layout.rows)

    def forward(
        self, x: flow.Tensor, cos: flow.Tensor, sin: flow.Tensor, past: KeysAndValues | None = None
    ) -> tuple[flow.Tensor, KeysAndValues]:
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.k(x).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        v = self.v(x).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        q, k = F.rotary(q, cos, sin), F.rotary(k, cos, sin)
        if past is not None:
            k, v = flow.cat([past[0], k], 2), flow.cat([past[1], v], 2)
        # After a cache there is one query, which sees all keys.
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width)), (k, v)


class Block(nn.Module):
    """Attention and a gated network, each after a norm and with a residual connection."""

    def __init__(self, args: argparse.Namespace, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        width, hidden = args.width, 3 * args.width
        self.norm1 = nn.RMSNorm(width, **layout.whole)
        self.attention = Attention(width, args.heads, args.kv_heads, layout)
        self.norm2 = nn.RMSNorm(width, **layout.whole)
        self.gate = nn.Linear(width, hidden, bias=False, **layout.columns)
        self.up = nn.Linear(width, hidden, bias=False, **layout.columns)
        self.down = nn.Linear(hidden, width, bias=False, **layout.rows)

    def forward(
        self, x: flow.Tensor, start: int = 0, past: KeysAndValues | None = None
    ) -> tuple[flow.Tensor, KeysAndValues]:
        y, kept = self.attention(self.norm1(x), *self.tables(x.shape[1], start), past)
        x = x + y
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), kept

    def tables(self, length: int, start: int) -> tuple[flow.Tensor, flow.Tensor]:
        """The cosines and sines of the angles at positions from `start` on (length, pairs)."""
        place, size = self.layout.replicated, self.attention.size
        rates = 10000 ** (-flow.arange(0, size, 2, dtype=flow.float32, **place) / size)
        angles = flow.arange(start, start + length, dtype=flow.float32, **place)[:, None] * rates
        return flow.cos(angles), flow.sin(angles)


class Llama(nn.Module):
    """Bytes (batch, length) to the scores of the next byte (batch, length, 256)."""

    def __init__(self, args: argparse.Namespace, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        vocabulary = gpt_data.VOCABULARY
        self.tokens = nn.Embedding(vocabulary, args.width, **layout.whole)
        self.blocks = nn.ModuleList(
            Block(args, layout.at(i, args.layers)) for i in range(args.layers)
        )
        self.norm = nn.RMSNorm(args.width, **layout.last.whole)
        self.head = nn.Linear(args.width, vocabulary, bias=False, **layout.last.columns)

    def forward(
        self, bytes_: flow.Tensor, start: int = 0, cache: Cache | None = None
    ) -> flow.Tensor:
        x = self.tokens(bytes_)
        for index, block in enumerate(self.blocks):
            x = x.to_global(block.layout.placement, x.sbp)
            x, kept = block(x, start, cache[index] if cache else None)
            if cache is not None:
                cache[index] = kept
        return self.head(self.norm(x.to_global(self.layout.last.placement, x.sbp)))


def generate(model: Llama, start: bytes, count: int, cached: bool = True) -> bytes:
    """`start` and `count` bytes that the model draws after it."""
    text = list(start)
    cache: Cache | None = [None] * len(model.blocks) if cached else None
    with flow.no_grad():
        new = text
        for _ in range(count):
            done = len(text) - len(new)
            given = flow.tensor(torch.tensor([new]), **model.layout.replicated)
            scores = model(given, done, cache)[0, -1]
            probabilities = flow.softmax(scores.to_global(sbp=model.layout.replicated["sbp"]), 0)
            drawn = flow.searchsorted(
                probabilities.cumsum(0), flow.rand((1,), **model.layout.last.replicated)
            )
            text.append(min(int(drawn.item()), gpt_data.VOCABULARY - 1))
            new = text[-1:] if cached else text
    return bytes(text)


def make(args: argparse.Namespace, layout: Layout) -> Training:
    model = Llama(args, layout)
    optimizer = flow.optim.AdamW(model.parameters(), lr=args.lr)

    def loss_of(bytes_: flow.Tensor, following: flow.Tensor) -> flow.Tensor:
        return F.cross_entropy(model(bytes_).flatten(0, 1), following.flatten())

    def batches() -> Batches:
        text = gpt_data.load()
        while True:
            pieces = map(torch.from_numpy, gpt_data.batch(text, args.batch, args.length))
            bytes_, following = pieces
            yield (
                flow.tensor(bytes_, **layout.data),
                flow.tensor(following, **layout.last.data),
            )

    return model, optimizer, loss_of, batches()


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    given = parser(__doc__, steps=60, batch=16, length=64, layers=4, width=64)
    given.add_argument("--heads", type=int, default=8, help="of queries; default: 8")
    given.add_argument("--kv-heads", type=int, default=4, help="of keys and values; default: 4")
    given.add_argument("--sample", type=int, default=100, help="bytes to write at the end")
    return parse_options(given, arguments)


def main() -> None:
    args = parse()
    model, losses = train(args, make)
    text = generate(model, b"def ", args.sample)
    if flow.env.get_rank() == 0:
        print(f"{len(losses)} steps, last loss {losses[-1]:.3f}; the model writes:")
        print(readable(text))


if __name__ == "__main__":
    main()
