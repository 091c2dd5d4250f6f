"""The steps of random programs, as functions of a library: torch or onefold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ..engine.sbp import NdSbp


class Lib(Protocol):
    """Where a step finds its ops: those of torch, or those of onefold under the same names."""

    def __getattr__(self, name: str) -> Callable[..., Any]: ...

    def to_global(self, x: Any, placement: int, nd_sbp: NdSbp) -> Any:
        """`x` on one of the program's placements."""
        ...

    def change(self, x: Any, name: str, *args: Any) -> None:
        """Change `x` in place by the op of this name."""
        ...

    def assign(self, x: Any, index: Any, value: Any) -> None:
        """`x[index] = value`."""
        ...


# Running. Values stay small: what would grow goes through tanh first.

SMOOTH = ("tanh", "sigmoid", "sin", "neg", "square", "gelu", "silu", "softplus")
KINKED = ("relu", "abs", "leaky_relu", "sign", "floor")
REDUCTIONS = ("sum", "mean", "logsumexp")
EXTREMES = ("amax", "amin")


def _product(lib: Lib, a: Any, b: Any) -> Any:
    return lib.matmul(lib.tanh(a), b)


def _changed(lib: Lib, x: Any, y: Any, name: str) -> Any:
    z = lib.clone(x)
    lib.change(z, name, y)
    return z


def _assigned(lib: Lib, x: Any, index: Any, value: Any) -> Any:
    z = lib.clone(x)
    lib.assign(z, index, value)
    return z


def _normed(lib: Lib, x: Any, weight: Any, bias: Any) -> Any:
    return lib.layer_norm(x, (x.shape[-1],), weight, bias, 0.1)


def _unary(name: str) -> Callable[..., Any]:
    return lambda lib, x, *attrs: getattr(lib, name)(x, *attrs)


STEPS: dict[str, Callable[..., Any]] = {
    **{name: _unary(name) for name in (*SMOOTH, *KINKED, *REDUCTIONS, *EXTREMES)},
    **{name: _unary(name) for name in ("softmax", "log_softmax", "cumsum", "reshape", "permute")},
    **{name: _unary(name) for name in ("unsqueeze", "squeeze", "narrow", "flip", "argmax")},
    "add": lambda lib, a, b: lib.add(a, b),
    "sub": lambda lib, a, b: lib.sub(a, b),
    "mul": lambda lib, a, b: lib.mul(lib.tanh(a), b),
    "div": lambda lib, a, b: lib.div(a, lib.add(lib.square(b), 1.0)),
    "add_number": lambda lib, x, number: lib.add(x, number),
    "mul_number": lambda lib, x, number: lib.mul(x, number),
    "from_number": lambda lib, x, number: lib.sub(number, x),
    "less": lambda lib, a, b: lib.lt(a, b),
    "where": lambda lib, condition, a, b: lib.where(condition, a, b),
    "matmul": _product,
    "linear": lambda lib, x, w, b: lib.linear(lib.tanh(x), w, b),
    "layer_norm": _normed,
    "cat": lambda lib, a, b, dim: lib.cat([a, b], dim),
    "stack": lambda lib, a, b, dim: lib.stack([a, b], dim),
    "chunk": lambda lib, x, parts, dim: lib.chunk(x, parts, dim)[-1],
    "getitem": lambda lib, x, index: x[index],
    "index_select": lambda lib, x, index, dim: lib.index_select(x, dim, index),
    "embedding": lambda lib, index, weight: lib.embedding(index, weight),
    "expand": lambda lib, x, shape: lib.broadcast_to(x, shape),
    "change": _changed,
    "setitem": _assigned,
    "to_global": lambda lib, x, placement, nd_sbp: lib.to_global(x, placement, nd_sbp),
}
