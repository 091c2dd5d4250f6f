"""The GPT of examples/gpt.py in plain torch, trained on two ranks in the ways that torch offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.function import FunctionCtx
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

RANKS = 2
MICRO_BATCHES = 8
VOCABULARY = 256

Step = Callable[[], object]  # one training step; its loss on this rank, or None
Losses = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Linear = Callable[[int, int], nn.Module]
Weights = Mapping[str, torch.Tensor]


class Attention(nn.Module):
    """Causal self-attention over as many heads as the projections give."""

    def __init__(self, width: int, heads: int, columns: Linear, rows: Linear) -> None:
        super().__init__()
        self.size = width // heads
        self.q, self.k, self.v = (columns(width, width) for _ in range(3))
        self.out = rows(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        shape = (batch, length, -1, self.size)
        q, k, v = (f(x).view(shape).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: torch.Tensor = self.out(y.transpose(1, 2).reshape(batch, length, -1))
        return out


class Block(nn.Module):
    """Attention and a two-layer network; `enter` is what each does with its input."""

    def __init__(
        self, width: int, heads: int, columns: Linear, rows: Linear, enter: nn.Module
    ) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, columns, rows)
        self.up, self.down = columns(width, 4 * width), rows(4 * width, width)
        self.enter = enter

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.enter(self.norm1(x)))
        out: torch.Tensor = x + self.down(F.gelu(self.up(self.enter(self.norm2(x)))))
        return out


class GPT(nn.Module):
    """The layers of one stage; the first also embeds, the last also gives scores."""

    def __init__(
        self,
        size: Mapping[str, int],
        layers: Iterable[int] | None = None,
        columns: Linear = nn.Linear,
        rows: Linear = nn.Linear,
        enter: nn.Module | None = None,
    ) -> None:
        super().__init__()
        width, count, enter = size["width"], size["layers"], enter or nn.Identity()
        chosen = list(range(count) if layers is None else layers)
        self.first, self.last = chosen[0] == 0, chosen[-1] == count - 1
        if self.first:
            self.tokens = nn.Embedding(VOCABULARY, width)
            self.places = nn.Embedding(size["length"], width)
        self.blocks = nn.ModuleDict(
            {str(i): Block(width, size["heads"], columns, rows, enter) for i in chosen}
        )
        self.enter = enter
        if self.last:
            self.norm = nn.LayerNorm(width)
            self.head = columns(width, VOCABULARY)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.first:
            x = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks.values():
            x = block(x)
        return self.head(self.enter(self.norm(x))) if self.last else x


def mean_loss(scores: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(scores.view(-1, scores.shape[-1]), following.reshape(-1))


def adamw(model: nn.Module, fused: bool | None) -> torch.optim.Optimizer:
    """torch's AdamW, for lists of tensors; such a list holds DTensors only, or none."""
    lists: dict[type, list[nn.Parameter]] = {}
    for param in model.parameters():
        lists.setdefault(type(param.data), []).append(param)
    groups = [{"params": params} for params in lists.values()]
    return torch.optim.AdamW(groups, lr=1e-3, weight_decay=0.01, foreach=not fused, fused=fused)


def _step(
    model: nn.Module,
    bytes_: torch.Tensor,
    following: torch.Tensor,
    fused: bool | None,
    loss_of: Losses = mean_loss,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Step:
    optimizer = adamw(model, fused)

    def step() -> torch.Tensor:
        with around():
            loss = loss_of(model(bytes_), following)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def data_parallel(
    size: Mapping[str, int], weights: Weights, batch: Weights, fused: bool | None = None
) -> Step:
    """DistributedDataParallel on this rank's half of the batch."""
    model = GPT(size)
    model.load_state_dict(dict(weights))
    mine = [batch[key].chunk(RANKS)[dist.get_rank()] for key in ("bytes", "following")]
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    return _step(wrapped, mine[0], mine[1], fused)


# Tensor parallel with DTensor.


def dtensor(
    size: Mapping[str, int], weights: Weights, batch: Weights, fused: bool | None = None
) -> Step:
    """parallelize_module with torch's own styles, and loss_parallel for the scores."""
    model = GPT(size)
    model.load_state_dict(dict(weights))
    mesh = init_device_mesh("cpu", (RANKS,))
    plan: dict[str, object] = {
        "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    }
    for index in range(size["layers"]):
        at = f"blocks.{index}"
        plan[f"{at}.attention"] = PrepareModuleInput(
            input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),)
        )
        plan |= {f"{at}.attention.{name}": ColwiseParallel() for name in "qkv"}
        plan[f"{at}.attention.out"] = RowwiseParallel()
        plan[f"{at}.up"], plan[f"{at}.down"] = ColwiseParallel(), RowwiseParallel()
    parallelize_module(model, mesh, plan)
    return _step(model, batch["bytes"], batch["following"], fused, around=loss_parallel)


# Tensor parallel by hand, as Megatron-LM writes it.


class _Enter(torch.autograd.Function):
    """Nothing forward, all-reduce backward (f of Shoeybi et al., "Megatron-LM", 2019)."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: torch.Tensor) -> torch.Tensor:
        (dy,) = grads
        dy = dy.contiguous()
        dist.all_reduce(dy)
        return dy


class _Leave(torch.autograd.Function):
    """All-reduce forward, nothing backward (g of the same)."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: torch.Tensor) -> torch.Tensor:
        (dy,) = grads
        return dy


class _Apply(nn.Module):
    def __init__(self, function: type[torch.autograd.Function]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.function.apply(x)
        return out


class _Rows(nn.Module):
    """A linear layer whose weight's columns are split: partial products summed, then the bias."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width_out, width_in // RANKS))
        self.bias = nn.Parameter(torch.empty(width_out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = _Leave.apply(F.linear(x, self.weight)) + self.bias
        return out


class _SplitCrossEntropy(torch.autograd.Function):
    """Cross-entropy of scores whose classes are split (vocab_parallel_cross_entropy there)."""

    @staticmethod
    def forward(ctx: FunctionCtx, scores: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        highest = scores.amax(-1)
        dist.all_reduce(highest, dist.ReduceOp.MAX)
        scores = scores - highest.unsqueeze(-1)
        classes = scores.shape[-1]
        at = following - dist.get_rank() * classes
        outside = (at < 0) | (at >= classes)
        at = at.masked_fill(outside, 0)
        chosen = scores.gather(-1, at.unsqueeze(-1)).squeeze(-1).masked_fill(outside, 0.0)
        dist.all_reduce(chosen)
        powers = scores.exp_()
        total = powers.sum(-1)
        dist.all_reduce(total)
        probabilities = powers.div_(total.unsqueeze(-1))
        ctx.save_for_backward(probabilities, at, outside)
        return (total.log() - chosen).mean()

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (dy,) = grads
        probabilities, at, outside = ctx.saved_tensors
        ones = (~outside).to(probabilities.dtype).unsqueeze(-1)
        probabilities.scatter_add_(-1, at.unsqueeze(-1), -ones)
        return probabilities.mul_(dy / at.numel()), None


def megatron(
    size: Mapping[str, int], weights: Weights, batch: Weights, fused: bool | None = None
) -> Step:
    """Collectives written by hand around plain linear layers."""

    def columns(width_in: int, width_out: int) -> nn.Module:
        return nn.Linear(width_in, width_out // RANKS)

    model = GPT(size, columns=columns, rows=_Rows, enter=_Apply(_Enter))
    shapes = {name: p.shape for name, p in model.named_parameters()}
    model.load_state_dict({name: _shard(weights[name], shape) for name, shape in shapes.items()})

    def loss_of(scores: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = _SplitCrossEntropy.apply(scores.flatten(0, 1), following.flatten())
        return loss

    return _step(model, batch["bytes"], batch["following"], fused, loss_of)


def _shard(whole: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    for dim, length in enumerate(shape):
        if whole.shape[dim] != length:
            whole = whole.chunk(RANKS, dim)[dist.get_rank()]
    return whole


# Two stages.


def pipeline(
    size: Mapping[str, int], weights: Weights, batch: Weights, fused: bool | None = None
) -> Step:
    """Schedule1F1B; the mean loss of the micro-batches on the last rank, None on the first."""
    rank, half = dist.get_rank(), size["layers"] // RANKS
    model = GPT(size, range(rank * half, (rank + 1) * half))
    names = [name for name, _ in model.named_parameters()]
    model.load_state_dict({name: weights[name] for name in names})
    stage = PipelineStage(model, rank, RANKS, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=mean_loss)
    optimizer = adamw(model, fused)

    def step() -> torch.Tensor | None:
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(batch["bytes"])
        else:
            schedule.step(target=batch["following"], losses=losses)
        optimizer.step()
        optimizer.zero_grad()
        return torch.stack(losses).mean().detach() if losses else None

    return step
