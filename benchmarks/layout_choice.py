"""Time to choose the layouts of large models, and how far from the least time they may be.

    python benchmarks/layout_choice.py    # prints the table, writes results/layout_choice.json
    python benchmarks/layout_choice.py --case "8B, 8 x 8"

Models in the shape of Llama 3, in bfloat16 with AdamW, captured in a `flow.planning` block with all
parameters broadcast. `import` and `capture` are what any graph takes; `search` chooses the layouts
of parameters, inputs and ops. Seconds are those of the processor, of which this uses one core.
`step` is the modeled time of a training step with the layouts that were found, `bound` a lower
bound for all layouts. With "h100" costs are those of DGX H100 nodes, else those of eager mode. Each
case runs in a process of its own; `MB` is the most that it held.
"""

from __future__ import annotations

import math
import resource
import time
from dataclasses import dataclass, replace

import numpy as np
import timing

import onefold as flow
from onefold import nn
from onefold.nn.graph_layouts import best_layouts

F = nn.functional
B = flow.sbp.broadcast
LENGTH = 2048
TIMEOUT = 600.0


@dataclass(frozen=True)
class Case:
    """A model, and the mesh that it is laid out on."""

    mesh: tuple[int, ...]
    hardware: str | None = None
    layers: int = 32
    width: int = 4096
    heads: int = 32
    kv_heads: int = 8
    hidden: int = 14336
    vocabulary: int = 128256
    batch: int = 64


DEEP = Case((8, 8), layers=96, width=8192, heads=64, hidden=28672)
CASES = {
    "8B, 8 x 8": Case((8, 8)),
    "8B, 8 x 8, h100": Case((8, 8), "h100"),
    "8B, 64": Case((64,)),
    "96 layers, 8 x 8": DEEP,
    "96 layers, 4 x 8": replace(DEEP, mesh=(4, 8)),
    "96 layers, 8": replace(DEEP, mesh=(8,)),
}


class Block(nn.Module):
    def __init__(self, case: Case, where: flow.placement) -> None:
        super().__init__()
        how = {"placement": where, "sbp": (B,) * where.ndim}
        self.heads, self.kv_heads, self.size = case.heads, case.kv_heads, case.width // case.heads
        shared = case.kv_heads * self.size
        self.norm1, self.norm2 = (nn.RMSNorm(case.width, **how) for _ in range(2))
        self.q, self.out = (nn.Linear(case.width, case.width, bias=False, **how) for _ in "qo")
        self.k, self.v = (nn.Linear(case.width, shared, bias=False, **how) for _ in "kv")
        self.gate, self.up = (nn.Linear(case.width, case.hidden, bias=False, **how) for _ in "gu")
        self.down = nn.Linear(case.hidden, case.width, bias=False, **how)

    def forward(self, x: flow.Tensor, cos: flow.Tensor, sin: flow.Tensor) -> flow.Tensor:
        batch, length, width = x.shape
        h = self.norm1(x)
        q = self.q(h).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.k(h).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        v = self.v(h).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        q, k = F.rotary(q, cos, sin), F.rotary(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, case: Case, where: flow.placement) -> None:
        super().__init__()
        how = {"placement": where, "sbp": (B,) * where.ndim}
        self.tokens = nn.Embedding(case.vocabulary, case.width, **how)
        self.blocks = nn.ModuleList(Block(case, where) for _ in range(case.layers))
        self.norm = nn.RMSNorm(case.width, **how)
        self.head = nn.Linear(case.width, case.vocabulary, bias=False, **how)
        angles = LENGTH, case.width // case.heads // 2
        self.register_buffer("cos", flow.zeros(angles, **how))
        self.register_buffer("sin", flow.zeros(angles, **how))

    def forward(self, tokens: flow.Tensor) -> flow.Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


class Train(nn.Graph):
    def __init__(self, model: Llama) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.AdamW(model.parameters(), lr=1e-4))

    def build(self, tokens: flow.Tensor, following: flow.Tensor) -> flow.Tensor:
        loss = F.cross_entropy(self.model(tokens).flatten(0, 1), following.flatten())
        loss.backward()
        return loss


def measure(case: Case) -> timing.Results:
    """Seconds of each part, and what was found."""
    found: timing.Results = {"import s": time.process_time()}
    with flow.planning(math.prod(case.mesh)):
        ranks = np.arange(math.prod(case.mesh)).reshape(case.mesh)
        where = flow.placement("cuda", ranks.tolist())
        graph = Train(Llama(case, where).bfloat16())
        shape = case.batch, LENGTH
        given = [flow.zeros(shape, dtype=flow.int64, placement=where, sbp=(B,) * where.ndim)] * 2
        graph(*given)
        found["capture s"] = time.process_time() - found["import s"]
        choice = best_layouts(graph, case.hardware)
    found["all s"] = time.process_time()
    found["search s"] = found["all s"] - found["import s"] - found["capture s"]
    return found | {
        "parameters": sum(p.numel() for p in graph.model.parameters()),
        "step s": choice.seconds,
        "bound s": choice.lower_bound,
        "as given s": choice.start,
        "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    columns = "import s", "capture s", "search s", "all s", "step s", "bound s", "as given s", "MB"
    timing.cases(__file__, __doc__, CASES, measure, columns, TIMEOUT)


if __name__ == "__main__":
    main()
