"""torch.quasirandom (`flow.quasirandom`): numbers that fill a cube evenly."""

from __future__ import annotations

from torch import dtype as DType, quasirandom

from .engine.tensor import Tensor, tensor_ops
from .engine.values import from_torch
from .errors import OnefoldValueError

__all__ = ["SobolEngine"]


class SobolEngine:
    """Points of a Sobol sequence, which are those of torch.

    dimension: how many numbers a point has, 1 to `MAXDIM`.
    scramble: whether the sequence is scrambled.
    seed: of the scrambling; without it the default generator gives one.

    Raises OnefoldValueError for another dimension.

    >>> import onefold as flow
    >>> flow.quasirandom.SobolEngine(2).draw(2)
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000]])
    """

    MAXDIM = quasirandom.SobolEngine.MAXDIM

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise OnefoldValueError(
                f"SobolEngine: dimension must be between 1 and {self.MAXDIM}, but got {dimension}"
            )
        self.dimension = dimension
        self.scramble = scramble
        self.seed = seed
        if scramble and seed is None:
            seed = int(tensor_ops.randint(0, 2**31, (1,)).item())
        self._points = quasirandom.SobolEngine(dimension, scramble, seed)

    @property
    def num_generated(self) -> int:
        """How many points have been drawn."""
        return int(self._points.num_generated)

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next `n` points, of shape (n, dimension); `out` takes them if it is given."""
        made = from_torch(self._points.draw(n, dtype=dtype))
        return made if out is None else out.resize_(*made.shape).copy_(made)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next 2**m points. Raises OnefoldValueError where these would not be balanced."""
        total = self.num_generated + 2**m
        if total & (total - 1):
            raise OnefoldValueError(
                f"draw_base2: a power of two points are balanced, but {self.num_generated} points "
                f"and 2**{m} more are {total}; call reset() first, or draw(n)"
            )
        return self.draw(2**m, out, dtype)

    def reset(self) -> SobolEngine:
        """Go back to the first point."""
        self._points.reset()
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out the next `n` points."""
        self._points.fast_forward(n)
        return self

    def __repr__(self) -> str:
        parts = [f"dimension={self.dimension}"]
        parts += ["scramble=True"] * self.scramble
        parts += [f"seed={self.seed}"] * (self.seed is not None)
        return f"SobolEngine({', '.join(parts)})"
