"""GPT as Megatron-LM trains it: data, tensor and sequence parallelism, stages and recomputation.

Parameters, their gradients' sums and the optimizer's state are float32, everything else is
float16. Attention keeps its scores, dropout is 0.1, the vocabulary is split, and the update
unscales and clips gradients. Source: Korthikanti et al., "Reducing activation recomputation in
large transformer models" (2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import onefold as flow
from onefold import nn
from onefold.engine.cluster import Cluster

B, S0, S1 = flow.sbp.broadcast, flow.sbp.split(0), flow.sbp.split(1)


@dataclass(frozen=True)
class Job:
    """A model and how it is trained; all ranks are `stages` x `data` x `tensor`."""

    layers: int
    width: int
    heads: int
    tensor: int  # ranks that work on parts of the weights
    stages: int  # groups of ranks, one after the other
    micro_batch: int  # samples that a group of ranks computes at once
    micro_batches: int
    chunks: int = 1  # parts of the model that each group has
    sequence: bool = False  # whether activations between products are split along the sequence
    again: str = ""  # what backward computes again: "", "all" or "attention"
    spare: int = 0  # layers fewer in the first and in the last part
    length: int = 2048
    vocabulary: int = 51200
    data: int = 1  # groups of ranks that work on parts of the batch
    zero: int = 0  # what these split besides: 1 the optimizer's state, 3 parameters, too
    half: flow.dtype = flow.float16  # of activations and products
    dropout: float = 0.1
    fused: bool = False  # whether attention is one causal op, whose scores are never written

    @property
    def ranks(self) -> int:
        return self.tensor * self.stages * self.data

    @property
    def samples(self) -> int:
        return self.micro_batch * self.micro_batches * self.data

    @property
    def mesh(self) -> tuple[int, ...]:
        """The shape of a group of ranks that has a part of the model."""
        return (self.data, self.tensor) if self.data > 1 else (self.tensor,)

    @property
    def whole(self) -> Any:
        """The layout of activations that all ranks of `tensor` have."""
        return (S0, B) if self.data > 1 else B

    @property
    def between(self) -> Any:
        """That of activations between the products of a layer."""
        if not self.sequence:
            return self.whole
        return (S0, S1) if self.data > 1 else S1

    def part(self, layer: int) -> int:
        """The part of the model that a layer is in."""
        return (layer + self.spare) * self.stages * self.chunks // (self.layers + 2 * self.spare)


def parameter(p: flow.placement, sbp: Any, *shape: int) -> nn.Parameter:
    """A parameter that is laid out along the last axis of a mesh, and broadcast along others."""
    nd_sbp = (*[B] * (len(p.shape) - 1), sbp)
    return nn.Parameter(flow.zeros(*shape, placement=p, sbp=nd_sbp))


class Linear(nn.Module):
    """A product with a weight that is read in the dtype of the input."""

    def __init__(self, p: flow.placement, sbp: Any, inner: int, outer: int, bias: bool = True):
        super().__init__()
        self.weight = parameter(p, sbp, outer, inner)
        self.bias = parameter(p, sbp if sbp is S0 else B, outer) if bias else None

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return nn.functional.linear(x, self.weight.to(x.dtype), bias)


class Norm(nn.Module):
    def __init__(self, p: flow.placement, width: int):
        super().__init__()
        self.weight, self.bias = parameter(p, B, width), parameter(p, B, width)

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
        return nn.functional.layer_norm(x, tuple(weight.shape), weight, bias)


class Again(flow.autograd.Function):
    """Lets backward read the end of what it computes again.

    Nothing needs its last product, which a graph would leave out. Megatron-LM computes all.
    """

    @staticmethod
    def forward(ctx: Any, y: flow.Tensor) -> flow.Tensor:
        ctx.save_for_backward(y)
        return y.view(*y.shape)

    @staticmethod
    def backward(ctx: Any, dy: flow.Tensor) -> flow.Tensor:
        (y,) = ctx.saved_tensors
        return dy + 0 * y[:1, :1, :1]


class Attention(nn.Module):
    """The scores, their softmax and what they weigh, as values of their own or by one op."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.dropout, self.fused = nn.Dropout(job.dropout), job.fused
        self.again = job.again == "attention"

    def forward(self, q: flow.Tensor, k: flow.Tensor, v: flow.Tensor) -> flow.Tensor:
        if self.fused:
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = flow.matmul(q * (1 / sqrt(q.shape[-1])), k.transpose(2, 3))
        y = flow.matmul(self.dropout(flow.softmax(scores, -1)), v)
        return Again.apply(y) if self.again else y


class Layer(nn.Module):
    """Between its products activations are whole, or split along the sequence."""

    def __init__(self, job: Job, p: flow.placement):
        super().__init__()
        self.job, width = job, job.width
        self.norm1, self.norm2 = Norm(p, width), Norm(p, width)
        self.qkv, self.out = Linear(p, S0, width, 3 * width), Linear(p, S1, width, width)
        self.up, self.down = Linear(p, S0, width, 4 * width), Linear(p, S1, 4 * width, width)
        self.attention, self.dropout = Attention(job), nn.Dropout(job.dropout)

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        job, (batch, length, width) = self.job, x.shape
        qkv = self.qkv(self.norm1(x).to_global(sbp=job.whole))
        heads = qkv.view(batch, length, job.heads, 3 * width // job.heads).transpose(1, 2)
        y = self.attention(*heads.chunk(3, -1)).transpose(1, 2).reshape(batch, length, width)
        x = x + self.dropout(self.out(y).to_global(sbp=job.between))
        y = self.down(flow.gelu(self.up(self.norm2(x).to_global(sbp=job.whole))))
        y = x + self.dropout(y.to_global(sbp=job.between))
        return Again.apply(y) if job.again == "all" else y

    def compute_again(self) -> None:
        """Say to a graph what backward computes again."""
        for what, module in (("all", self), ("attention", self.attention)):
            view = module.to(nn.graph.GraphModule)
            view.activation_checkpointing = self.job.again == what


class Begin(nn.Module):
    """Tokens to the input of the first layer."""

    def __init__(self, job: Job, p: flow.placement):
        super().__init__()
        self.job, self.dropout = job, nn.Dropout(job.dropout)
        self.tokens = parameter(p, S0, job.vocabulary, job.width)
        self.places = parameter(p, B, job.length, job.width)

    def forward(self, tokens: flow.Tensor) -> flow.Tensor:
        x = nn.functional.embedding(tokens, self.tokens.to(self.job.half))
        x = x.to_global(sbp=self.job.whole) + self.places.to(x.dtype)
        return self.dropout(x.to_global(sbp=self.job.between))


class End(nn.Module):
    """The output of the last layer, and the tokens that follow, to the loss."""

    def __init__(self, job: Job, p: flow.placement):
        super().__init__()
        self.whole, self.norm = job.whole, Norm(p, job.width)
        self.scores = Linear(p, S0, job.width, job.vocabulary, bias=False)

    def forward(self, x: flow.Tensor, following: flow.Tensor) -> flow.Tensor:
        scores = self.scores(self.norm(x).to_global(sbp=self.whole)).float()
        flat = scores.view(-1, scores.shape[-1])
        return nn.functional.cross_entropy(flat, following.reshape(-1))


class GPT(nn.Module):
    kinds: tuple[Any, Any, Any] = (Begin, Layer, End)

    def __init__(self, job: Job, meshes: list[flow.placement]):
        super().__init__()
        self.job, self.parts = job, meshes * job.chunks
        begin, layer, end = self.kinds
        self.begin, self.end = begin(job, self.parts[0]), end(job, self.parts[-1])
        self.layers = nn.ModuleList(layer(job, self.parts[job.part(i)]) for i in range(job.layers))

    def forward(self, tokens: flow.Tensor, following: flow.Tensor) -> flow.Tensor:
        x = self.begin(tokens)
        for i, layer in enumerate(self.layers):
            x = layer(x.to_global(self.parts[self.job.part(i)], self.job.between))
        return self.end(x.to_global(self.parts[-1], self.job.between), following)

    def set_stages(self) -> None:
        """Say to a graph which part each module is."""
        of = [(self.begin, 0), (self.end, len(self.parts) - 1)]
        of += [(layer, self.job.part(i)) for i, layer in enumerate(self.layers)]
        for module, part in of:
            module.to(nn.graph.GraphModule).set_stage(part, self.parts[part])


class Training(nn.Graph):
    """A step of all micro-batches, with the update."""

    def __init__(self, model: GPT):
        super().__init__()
        self.model, job = model, model.job
        group = {"params": list(model.parameters()), "clip_grad_max_norm": 1.0}
        self.add_optimizer(flow.optim.AdamW([group]))
        if job.half is flow.float16:
            self.set_grad_scaler(flow.amp.GradScaler())
        if job.zero:
            self.config.enable_zero(stage=job.zero)
        self.config.set_gradient_accumulation_steps(job.micro_batches)
        if len(model.parts) > 1:
            model.set_stages()
            self.config.set_schedule("interleaved" if job.chunks > 1 else "1f1b")
        for layer in model.layers if job.again else ():
            layer.compute_again()

    def build(self, tokens: flow.Tensor, following: flow.Tensor) -> flow.Tensor:
        loss = self.model(tokens, following)
        loss.backward()
        return loss


def training(job: Job, cluster: Cluster, kind: type[GPT] = GPT) -> Training:
    """The compiled graph of a job, on a cluster that is planned."""
    model = kind(job, cluster.meshes(*job.mesh))
    graph = Training(model)
    shape = job.samples, job.length
    graph(
        *(
            flow.zeros(*shape, dtype=flow.int64, placement=p, sbp=job.whole)
            for p in (model.parts[0], model.parts[-1])
        )
    )
    return graph


class Shifted(nn.Module):
    """A layer whose input has a gradient, as in a network."""

    def __init__(self, job: Job, p: flow.placement):
        super().__init__()
        self.layer, self.shift = Layer(job, p), parameter(p, B, 1)

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        return self.layer(x + self.shift.to(x.dtype))


class OneLayer(nn.Graph):
    """A layer alone: forward, or forward and backward, and a small update."""

    def __init__(self, job: Job, p: flow.placement, trains: bool):
        super().__init__()
        self.model = Shifted(job, p)
        if trains:
            self.add_optimizer(flow.optim.SGD(self.model.parameters(), lr=0.1))
        self.model.layer.compute_again()

    def build(self, x: flow.Tensor) -> flow.Tensor:
        if not self.training:
            return self.model.layer(x)
        y = self.model(x)
        y.backward(x)
        return y


def one_layer(job: Job, cluster: Cluster, trains: bool) -> OneLayer:
    """The compiled graph of one layer of a job."""
    (p,) = cluster.meshes(*job.mesh)
    graph = OneLayer(job, p, trains)
    shape = job.micro_batch, job.length, job.width
    with flow.set_grad_enabled(trains):
        graph(flow.zeros(*shape, placement=p, sbp=job.between, dtype=job.half))
    return graph
