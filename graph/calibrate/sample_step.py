"""Sample step: forward and backward of a small transformer, as a program of one rank."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import torch

from ...engine.names import all_names
from ...engine.tensor import Tensor
from ...engine.values import from_torch
from ..compiled_graph import Compiled, State, compile_graph
from ..graph_config import GraphConfig
from ..stored_layouts import StoredLayouts
from ..zero import Zero
from .compute_probes import PASSED

_VOCABULARY = 256
_LAYERS = 2
_HEADS = 8
_MOVED = 7  # values of each parameter that AdamW reads or writes


def sample_step(width: int, batch: int, length: int) -> tuple[Compiled, list[Tensor]]:
    """The program and inputs for it; the parameters' gradients are made, and not used."""
    torch.manual_seed(0)
    tensors = {name: _parameter(*shape) for name, shape in _shapes(width, length).items()}
    inputs = [from_torch(torch.randint(0, _VOCABULARY, (batch, length))) for _ in range(2)]

    def build(tokens: Tensor, following: Tensor) -> Tensor:
        loss = _loss(tensors, tokens, following)
        loss.backward()
        return loss

    state = State(tensors, {}, {}, [*tensors.values()])
    metas = [x.meta for x in inputs]
    compiled = compile_graph(
        build, (tuple(inputs), {}), metas, state, GraphConfig(), Zero(None), StoredLayouts()
    )
    return compiled, inputs


class OptimizerStep:
    """Steps of torch's fused AdamW on parameters as a program has, and the bytes that one moves.

    There are several sets in turn: in a training step much else passes through the caches.
    """

    def __init__(self, compiled: Compiled) -> None:
        values = [variable.tensor.shards[0] for variable in compiled.program.variables]
        self.nbytes = _MOVED * sum(value.nbytes for value in values)
        steps = [_optimizer(values).step for _ in range(max(1, PASSED // self.nbytes))]
        self._turns = cycle(steps)

    def __call__(self) -> None:
        next(self._turns)()


def _optimizer(values: Sequence[torch.Tensor]) -> torch.optim.AdamW:
    params = [torch.nn.Parameter(value.detach().clone()) for value in values]
    for param in params:
        param.grad = torch.zeros_like(param)
    return torch.optim.AdamW(params, fused=True)


def _parameter(*shape: int) -> Tensor:
    made = from_torch(0.02 * torch.randn(*shape))
    made.requires_grad = True
    return made


def _shapes(width: int, length: int) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {
        "tokens": (_VOCABULARY, width),
        "places": (length, width),
        "head": (_VOCABULARY, width),
    }
    for layer in range(_LAYERS):
        for name in ("q", "k", "v", "out"):
            found |= {f"{name}{layer}": (width, width), f"{name}{layer}.bias": (width,)}
        found |= {f"up{layer}": (4 * width, width), f"up{layer}.bias": (4 * width,)}
        found |= {f"down{layer}": (width, 4 * width), f"down{layer}.bias": (width,)}
        for name in ("norm1", "norm2"):
            found |= {f"{name}{layer}": (width,), f"{name}{layer}.bias": (width,)}
    return found


def _loss(tensors: dict[str, Tensor], tokens: Tensor, following: Tensor) -> Tensor:
    op: dict[str, Any] = all_names()

    def linear(name: str, x: Tensor) -> Any:
        return op["linear"](x, tensors[name], tensors[f"{name}.bias"])

    def norm(name: str, x: Any) -> Any:
        weight = tensors[name]
        return op["layer_norm"](x, tuple(weight.meta.shape), weight, tensors[f"{name}.bias"])

    x: Any = op["embedding"](tokens, tensors["tokens"])
    x = x + tensors["places"]
    batch, length, width = x.shape
    for layer in range(_LAYERS):
        inner = norm(f"norm1{layer}", x)
        shape = (batch, length, _HEADS, width // _HEADS)
        q, k, v = (linear(f"{n}{layer}", inner).view(*shape).transpose(1, 2) for n in "qkv")
        y = op["scaled_dot_product_attention"](q, k, v, is_causal=True)
        x = x + linear(f"out{layer}", y.transpose(1, 2).reshape(batch, length, width))
        inner = norm(f"norm2{layer}", x)
        x = x + linear(f"down{layer}", op["gelu"](linear(f"up{layer}", inner)))
    scores = op["linear"](x, tensors["head"])
    loss: Tensor = op["cross_entropy"](scores.view(-1, _VOCABULARY), following.reshape(-1))
    return loss
