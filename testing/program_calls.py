"""The steps of random programs, as functions of a library: torch or onefold."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, TypeVar

import torch

from ..engine.names import Function
from ..engine.sbp import NdSbp

T = TypeVar("T")
Index: TypeAlias = Any  # what stands in x[index]


class Lib(Protocol[T]):
    """Where a step finds its ops: those of torch, or those of onefold under the same names."""

    def __getattr__(self, name: str) -> Function: ...

    def to_global(self, x: T, placement: int, nd_sbp: NdSbp) -> T:
        """`x` on one of the program's placements."""
        ...

    def change(self, x: T, name: str, *args: T) -> None:
        """Change `x` in place by the op of this name."""
        ...

    def assign(self, x: T, index: Index, value: float) -> None:
        """`x[index] = value`."""
        ...


class _Torch(Lib[torch.Tensor]):
    """The ops of torch: what decides."""

    def __getattr__(self, name: str) -> Function:
        for place in (torch, torch.nn.functional):
            found: Function | None = getattr(place, name, None)
            if found is not None:
                return found
        raise AttributeError(f"torch has no function {name}")

    embedding = staticmethod(torch.nn.functional.embedding)  # torch.embedding takes them swapped

    def to_global(self, x: torch.Tensor, placement: int, nd_sbp: NdSbp) -> torch.Tensor:
        return x

    def change(self, x: torch.Tensor, name: str, *args: torch.Tensor) -> None:
        getattr(x, name + "_")(*args)

    def assign(self, x: torch.Tensor, index: Index, value: float) -> None:
        x[index] = value


TORCH = _Torch()

# Running. Values stay small: what would grow goes through tanh first.

SMOOTH = ("tanh", "sigmoid", "sin", "neg", "square", "gelu", "silu", "softplus")
KINKED = ("relu", "abs", "leaky_relu", "sign", "floor")
REDUCTIONS = ("sum", "mean", "logsumexp")
EXTREMES = ("amax", "amin")


def _changed(lib: Lib[T], x: T, y: T, name: str) -> T:
    z: T = lib.clone(x)
    lib.change(z, name, y)
    return z


def _assigned(lib: Lib[T], x: T, index: Index, value: float) -> T:
    z: T = lib.clone(x)
    lib.assign(z, index, value)
    return z


def _named(*names: str) -> dict[str, Function]:
    """The steps that are the op of their name."""
    return {name: lambda lib, *args, op=name: getattr(lib, op)(*args) for name in names}


STEPS: dict[str, Function] = {
    **_named(*SMOOTH, *KINKED, *REDUCTIONS, *EXTREMES),
    **_named("softmax", "log_softmax", "cumsum", "reshape", "permute", "unsqueeze", "squeeze"),
    **_named("narrow", "flip", "argmax", "add", "sub", "where", "embedding", "to_global"),
    "mul": lambda lib, a, b: lib.mul(lib.tanh(a), b),
    "div": lambda lib, a, b: lib.div(a, lib.add(lib.square(b), 1.0)),
    "add_number": lambda lib, x, number: lib.add(x, number),
    "mul_number": lambda lib, x, number: lib.mul(x, number),
    "from_number": lambda lib, x, number: lib.sub(number, x),
    "less": lambda lib, a, b: lib.lt(a, b),
    "matmul": lambda lib, a, b: lib.matmul(lib.tanh(a), b),
    "linear": lambda lib, x, w, b: lib.linear(lib.tanh(x), w, b),
    "layer_norm": lambda lib, x, w, b: lib.layer_norm(x, (x.shape[-1],), w, b, 0.1),
    "cat": lambda lib, a, b, dim: lib.cat([a, b], dim),
    "stack": lambda lib, a, b, dim: lib.stack([a, b], dim),
    "chunk": lambda lib, x, parts, dim: lib.chunk(x, parts, dim)[-1],
    "getitem": lambda lib, x, index: x[index],
    "index_select": lambda lib, x, index, dim: lib.index_select(x, dim, index),
    "expand": lambda lib, x, shape: lib.broadcast_to(x, shape),
    "change": _changed,
    "setitem": _assigned,
}
