"""Transformers with rotary embeddings whose heads share keys and values: Llama 3 and Nemotron-4.

Parameters, the sums of gradients and the optimizer's state are float32, everything else is
bfloat16. Attention is fused, there is no dropout, and the vocabulary is split. Sources: "The Llama
3 herd of models" (2024), "Nemotron-4 340B technical report" (2024).
"""

from __future__ import annotations

from dataclasses import dataclass

from megatron_gpt import GPT, S0, S1, B, End, Job, Linear, Norm, parameter

import onefold as flow
from onefold import nn

F = nn.functional


@dataclass(frozen=True)
class RotaryJob(Job):
    """A model and how it is trained; `gated` is Llama's feed-forward part, else squared ReLU."""

    kv_heads: int = 8
    hidden: int = 0
    gated: bool = True
    half: flow.dtype = flow.bfloat16
    fused: bool = True
    dropout: float = 0.0


class RootNorm(nn.Module):
    """Root mean squares, with a weight alone."""

    def __init__(self, p: flow.placement, width: int):
        super().__init__()
        self.weight = parameter(p, B, width)

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        return F.rms_norm(x, tuple(self.weight.shape), self.weight.to(x.dtype))


class RotaryLayer(nn.Module):
    """Between its products activations are whole, or split along the sequence."""

    def __init__(self, job: RotaryJob, p: flow.placement):
        super().__init__()
        self.job, width, size = job, job.width, job.width // job.heads
        norm = RootNorm if job.gated else Norm
        self.norm1, self.norm2 = norm(p, width), norm(p, width)
        kv = job.kv_heads * size
        self.q, self.k, self.v = (Linear(p, S0, width, n, bias=False) for n in (width, kv, kv))
        self.out = Linear(p, S1, width, width, bias=False)
        self.up = Linear(p, S0, width, job.hidden, bias=False)
        self.gate = Linear(p, S0, width, job.hidden, bias=False) if job.gated else None
        self.down = Linear(p, S1, job.hidden, width, bias=False)
        whole = {"placement": p, "sbp": (B,) * len(p.shape), "dtype": job.half}
        self.cos, self.sin = (flow.zeros(job.length, size // 2, **whole) for _ in range(2))

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        job = self.job
        y = x + self.attend(self.norm1(x).to_global(sbp=job.whole)).to_global(sbp=job.between)
        z = self.norm2(y).to_global(sbp=job.whole)
        up = self.up(z)
        up = flow.relu(up) ** 2 if self.gate is None else F.silu(self.gate(z)) * up
        return y + self.down(up).to_global(sbp=job.between)

    def attend(self, x: flow.Tensor) -> flow.Tensor:
        batch, length, width = x.shape
        shape = batch, length, -1, width // self.job.heads
        q, k, v = (each(x).view(*shape).transpose(1, 2) for each in (self.q, self.k, self.v))
        q, k = F.rotary(q, self.cos, self.sin), F.rotary(k, self.cos, self.sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class RotaryBegin(nn.Module):
    """Tokens to the input of the first layer."""

    def __init__(self, job: RotaryJob, p: flow.placement):
        super().__init__()
        self.job, self.tokens = job, parameter(p, S0, job.vocabulary, job.width)

    def forward(self, tokens: flow.Tensor) -> flow.Tensor:
        return F.embedding(tokens, self.tokens.to(self.job.half)).to_global(sbp=self.job.between)


class RotaryGPT(GPT):
    kinds = (RotaryBegin, RotaryLayer, End)
