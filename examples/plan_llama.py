"""Find out how to train a large language model on a cluster that does not exist.

    python examples/plan_llama.py
    python examples/plan_llama.py --model llama-8b --ranks 64
    python examples/plan_llama.py --model llama-405b --ranks 16384 --hardware h100
    python examples/plan_llama.py --model gpt-1t --ranks 4096 --hardware a100-80 --save plan.json

The model is written for one device. The search chooses the stages of a pipeline, the axes of their
meshes, micro-batches, the schedule, ZeRO and which activations are recomputed or offloaded, and
prints the time and memory of a step, and the code that lays the model out like this. Nothing is
allocated.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import onefold as flow
from onefold import nn

F = nn.functional


@dataclass(frozen=True)
class Shape:
    """The sizes of a model, and the batch that it is trained with."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    length: int
    batch: int  # sequences of a step
    gated: bool = True  # a Llama; else a GPT


SHAPES = {
    "tiny": Shape(4, 256, 8, 4, 704, 1024, 128, 32),
    "llama-8b": Shape(32, 4096, 32, 8, 14336, 128256, 8192, 128),
    "llama-70b": Shape(80, 8192, 64, 8, 28672, 128256, 8192, 1024),
    "llama-405b": Shape(126, 16384, 128, 8, 53248, 128256, 8192, 2048),
    "gpt-175b": Shape(96, 12288, 96, 96, 49152, 51200, 2048, 1536, gated=False),
    "gpt-1t": Shape(128, 25600, 160, 160, 102400, 51200, 2048, 3072, gated=False),
}


class Attention(nn.Module):
    """Causal self-attention with rotary embeddings; several queries share keys and values."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        self.size = shape.width // shape.heads
        bias = not shape.gated
        self.q_proj = nn.Linear(shape.width, shape.width, bias=bias)
        self.k_proj = nn.Linear(shape.width, shape.kv_heads * self.size, bias=bias)
        self.v_proj = nn.Linear(shape.width, shape.kv_heads * self.size, bias=bias)
        self.o_proj = nn.Linear(shape.width, shape.width, bias=bias)
        rates = 500000 ** (-flow.arange(0, self.size, 2, dtype=flow.float32) / self.size)
        angles = flow.arange(shape.length, dtype=flow.float32)[:, None] * rates
        self.register_buffer("cos", flow.cos(angles), persistent=False)
        self.register_buffer("sin", flow.sin(angles), persistent=False)

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        batch, length, width = x.shape
        q = self.q_proj(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        q, k = F.rotary(q, self.cos, self.sin), F.rotary(k, self.cos, self.sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    """SwiGLU in a Llama, GELU in a GPT."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        bias = not shape.gated
        self.up_proj = nn.Linear(shape.width, shape.hidden, bias=bias)
        self.down_proj = nn.Linear(shape.hidden, shape.width, bias=bias)
        if shape.gated:
            self.gate_proj = nn.Linear(shape.width, shape.hidden, bias=False)
        self.gated = shape.gated

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        up = self.up_proj(x)
        return self.down_proj(F.silu(self.gate_proj(x)) * up if self.gated else F.gelu(up))


class Block(nn.Module):
    """Attention and a feed-forward part, each after a norm and with a residual connection."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        norm = nn.RMSNorm if shape.gated else nn.LayerNorm
        self.attention_norm = norm(shape.width)
        self.attention = Attention(shape)
        self.feed_forward_norm = norm(shape.width)
        self.feed_forward = FeedForward(shape)

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class LanguageModel(nn.Module):
    """Tokens (batch, length) to the scores of the next token (batch, length, vocabulary)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width) if shape.gated else nn.LayerNorm(shape.width)
        self.lm_head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, tokens: flow.Tensor) -> flow.Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def loss_of(model: nn.Module, tokens: flow.Tensor, following: flow.Tensor) -> flow.Tensor:
    return F.cross_entropy(model(tokens).flatten(0, 1), following.flatten())


def search(args: argparse.Namespace) -> flow.auto.Result:
    """The search that the arguments ask for."""
    shape = SHAPES[args.model]
    tokens = flow.empty(args.batch or shape.batch, shape.length, dtype=flow.int64, device="meta")
    return flow.auto.search(
        lambda: LanguageModel(shape),
        (tokens, tokens),
        loss=loss_of,
        size=args.ranks,
        hardware=args.hardware,
        memory=args.memory and args.memory * 2**30,
        amp=flow.bfloat16,
        time_limit=args.time_limit,
    )


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(description=lines[0])
    parser.add_argument("--model", choices=tuple(SHAPES), default="tiny", help="default: tiny")
    parser.add_argument("--ranks", type=int, default=8, help="of the cluster; default: 8")
    parser.add_argument(
        "--hardware", default="h100", help="h100, h200, a100-80, or a TOML file; default: h100"
    )
    parser.add_argument("--batch", type=int, help="sequences of a step; default: the model's")
    parser.add_argument("--memory", type=float, help="GiB of each rank; default: the hardware's")
    parser.add_argument(
        "--time-limit", type=float, default=60.0, help="seconds of simulating; default: 60"
    )
    parser.add_argument("--code", action="store_true", help="print the strategy as Python code")
    parser.add_argument("--save", help="write the strategy to this JSON file")
    parser.add_argument("--report", help="write a page with the timeline to this HTML file")
    return parser.parse_args(arguments)


def main() -> None:
    args = parse()
    result = search(args)
    print(result)
    print(f"\nsearched in {result.took:.1f} s")
    if args.code:
        print(f"\n{result.strategy}")
    if args.save:
        result.strategy.save(args.save)
        print(f"strategy written to {args.save}")
    if args.report:
        result.report(args.report)
        print(f"page written to {args.report}")


if __name__ == "__main__":
    main()
