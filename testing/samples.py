"""Samples: a call of a public op, described such that torch and onefold can make it.

A sample names the op and describes its tensor arguments; values are drawn from a generator that
is seeded by the sample itself, so every process and every run sees the same ones.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from ..engine.names import Function, find_name
from ..engine.tensor import Tensor

Kind = TypeVar("Kind")
TorchTensor: TypeAlias = torch.Tensor  # in Sample, `torch` is the field


@dataclass(frozen=True, eq=False)
class Random:
    """A tensor argument of a sample: shape, dtype and the range of its random values."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    low: float | None = None
    high: float | None = None

    def draw(self, random: np.random.Generator) -> torch.Tensor:
        """A tensor of this description."""
        values: np.ndarray
        if self.dtype == torch.bool:
            values = random.random(self.shape) < 0.5
        elif not (self.dtype.is_floating_point or self.dtype.is_complex):
            values = random.integers(int(self.low or 0), int(self.high or 10), self.shape)
        elif self.low is None and self.high is None:
            values = random.standard_normal(self.shape)
        else:
            low = -1.0 if self.low is None else self.low
            high = low + 1.0 if self.high is None else self.high
            values = random.uniform(low, high, self.shape)
        if self.dtype.is_complex:
            values = values + 1j * random.standard_normal(self.shape)
        return torch.as_tensor(values).to(self.dtype)

    def __repr__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}[{', '.join(map(str, self.shape))}]"


def T(
    *shape: int,
    dtype: torch.dtype = torch.float64,
    low: float | None = None,
    high: float | None = None,
) -> Random:
    """A floating tensor argument: normal values, or uniform ones from `low` to `high`.

    Without `high` the range is `low` to `low + 1`; without `low` it starts at -1.
    """
    return Random(shape, dtype, low, high)


def I(*shape: int, high: int = 10, low: int = 0, dtype: torch.dtype = torch.int64) -> Random:  # noqa: E743, N802
    """An integer tensor argument with values from `low` to `high - 1`."""
    return Random(shape, dtype, low, high)


def Bo(*shape: int) -> Random:  # noqa: N802
    """A bool tensor argument."""
    return Random(shape, torch.bool)


@dataclass(frozen=True, eq=False)
class Sample:
    """One call of a public op and the torch call that it must equal.

    `args` and `kwargs` may hold `T`, `I`, `Bo` and torch tensors, also inside lists and tuples.
    The reference is `torch` if given, else `torch.<name>`, `torch.nn.functional.<name>` or the
    method of torch.Tensor; `call` replaces the op's public function where it must be adapted.
    `grad=False` leaves gradients out; `tol` is the relative difference allowed.

    Example:
        >>> Sample("add", (T(6, 4), T(4)))
        add(float64[6, 4], float64[4])
    """

    name: str
    args: tuple[object, ...] = ()
    kwargs: dict[str, object] = field(default_factory=dict)
    torch: Function | None = None
    call: Function | None = None
    grad: bool = True
    tol: float = 1e-10
    id: str = ""

    def __repr__(self) -> str:
        words = [*map(word, self.args), *(f"{k}={word(v)}" for k, v in self.kwargs.items())]
        return f"{self.id or self.name}({', '.join(words)})"

    @property
    def seed(self) -> int:
        return zlib.crc32(repr(self).encode())

    def tensors(self) -> list[TorchTensor]:
        """The values of the tensor arguments, in the order in which they stand."""
        random = np.random.default_rng(self.seed)
        return [
            leaf.draw(random) if isinstance(leaf, Random) else leaf.clone()
            for leaf in tree_leaves((self.args, self.kwargs))
            if isinstance(leaf, Random | torch.Tensor)
        ]

    def reference(self) -> Function:
        """The torch function that decides.

        Raises ValueError when the sample gives none and torch has none of its name.
        """
        if self.torch is not None:
            return self.torch
        for place in (torch, torch.nn.functional, torch.Tensor):
            found: Function | None = getattr(place, self.name, None)
            if found is not None:
                return found
        raise ValueError(f"torch has no function named {self.name!r}; give the sample torch=")

    def function(self) -> Function:
        """The onefold function under test.

        Raises ValueError when the sample gives none and no op has its name.
        """
        found = self.call or find_name(self.name)
        if found is None:
            raise ValueError(f"no op is named {self.name!r}; give the sample call=")
        return found

    def run_torch(self, tensors: list[TorchTensor]) -> list[TorchTensor]:
        """The tensors that the reference returns for these tensor arguments."""
        args, kwargs = _fill((self.args, self.kwargs), iter(tensors))
        return flat(self.reference()(*args, **kwargs), torch.Tensor)

    def filled(self, tensors: list[Tensor]) -> _Arguments:
        """The arguments of a call with these tensors."""
        return _fill((self.args, self.kwargs), iter(tensors))

    def run(self, tensors: list[Tensor]) -> list[Tensor]:
        """The tensors that the op returns for these tensor arguments."""
        args, kwargs = self.filled(tensors)
        return flat(self.function()(*args, **kwargs), Tensor)


def flat(result: object, kind: type[Kind]) -> list[Kind]:
    """The objects of a class in a result that may be nested in tuples, lists and dicts."""
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, kind)]


_Arguments: TypeAlias = tuple[tuple[object, ...], dict[str, object]]


def _fill(arguments: _Arguments, tensors: Iterator[object]) -> _Arguments:
    filled: _Arguments = tree_map_only((Random, torch.Tensor), lambda _: next(tensors), arguments)
    return filled


def word(value: object) -> str:
    """An argument as it stands in the text of a call: a tensor by its dtype and shape."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, tuple | list):
        inner = ", ".join(map(word, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    # Not repr: that of a function holds an address, and the word seeds the values.
    return value.__name__ if isinstance(value, FunctionType) else repr(value)
