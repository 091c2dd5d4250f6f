"""The parametrization of orthogonal and unitary matrices.

Source: Lezcano Casado, "Trivializations for Gradient-Based Optimization on Manifolds" (2019).
"""

from __future__ import annotations

from typing import TypeVar

import torch

from ...engine.argument_types import Layout
from ...engine.grad_mode import no_grad
from ...engine.inplace import fitted
from ...engine.ops.cat_split import cat
from ...engine.ops.creation import empty, eye, tensor, zeros
from ...engine.ops.torch_rows import FUNCTIONS
from ...engine.sbp import broadcast
from ...engine.tensor import Tensor
from ...engine.values import whole
from ...errors import OnefoldValueError
from .. import init
from ..module import Module
from .parametrize import register_parametrization, tensor_named

M = TypeVar("M", bound=Module)

_MAPS = ("matrix_exp", "cayley", "householder")


class _Orthogonal(Module):
    """A matrix with orthonormal rows or columns, of a matrix of the same shape.

    `base`, a square orthogonal matrix, makes it possible to begin with any such matrix.
    """

    base: Tensor

    def __init__(
        self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool = True
    ) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise OnefoldValueError(
                "The householder parametrization does not support complex tensors."
            )
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        self._based = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Tensor) -> Tensor:
        if x.is_global:
            x = x.to_global(sbp=(broadcast,) * x.placement.ndim)
        wide = x.shape[-2] < x.shape[-1]
        x = x.mT if wide else x
        q = self._by_reflections(x) if self.orthogonal_map == "householder" else self._by_group(x)
        if self._based:
            q = self.base @ q
        return q.mT if wide else q

    def _by_group(self, x: Tensor) -> Tensor:
        """By a map from skew-symmetric matrices, of which x (n, k) is the lower triangle."""
        n, k = x.shape[-2:]
        x = x.tril()
        if n != k:
            rest = zeros((*x.shape[:-1], n - k), dtype=x.dtype, **_whole_layout(x))
            x = cat([x, rest], -1)
        skew = x - x.mH
        if self.orthogonal_map == "matrix_exp":
            q: Tensor = FUNCTIONS["matrix_exp"](skew)
        else:
            one = eye(n, dtype=x.dtype, **_whole_layout(x))
            q = FUNCTIONS["linalg.solve"](one - skew * 0.5, one + skew * 0.5)
        return q[..., :k] if n != k else q

    def _by_reflections(self, x: Tensor) -> Tensor:
        """By Householder reflections, whose vectors are the columns of x (n, k)."""
        vectors = x.tril(-1)
        tau = 2.0 / (1.0 + (vectors * vectors).sum(-2))
        q: Tensor = FUNCTIONS["linalg.householder_product"](vectors, tau)
        # The diagonal holds signs, which are not trained.
        return q * x.diagonal(0, -2, -1).detach().sign().unsqueeze(-2)

    @no_grad
    def right_inverse(self, q: Tensor) -> Tensor:
        if q.shape != self.shape:
            raise OnefoldValueError(
                f"Expected a matrix or batch of matrices of shape {tuple(self.shape)}. Got a "
                f"tensor of shape {tuple(q.shape)}."
            )
        value = whole(q)
        wide = value.shape[-2] < value.shape[-1]
        tall = value.mT if wide else value
        n, k = tall.shape[-2:]
        if not self._based:
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    "the matrix exponential and the Cayley map have no inverse here: assign with "
                    "use_trivialization=True"
                )
            found = _reflections_of(tall)
            return fitted(found.mT if wide else found, q)
        if n != k:
            shape = (*tall.shape[:-2], n, n - k)
            drawn = init.normal_(empty(shape, dtype=q.dtype, **_whole_layout(q)))
            tall = torch.cat([tall, whole(drawn)], -1)
        base = tall if n == k and _is_orthogonal(tall) else _orthonormal(tall)
        self.base = tensor(base, dtype=q.dtype, **_whole_layout(q))
        # With -1 on the diagonal all maps give the identity, so that the value is the base.
        start = torch.zeros_like(value)
        start.diagonal(0, -2, -1).fill_(-1.0)
        return fitted(start, q)


def _whole_layout(x: Tensor) -> Layout:
    """The layout of x with broadcast on every axis."""
    if x.is_local:
        return {"device": x.device}
    return {"placement": x.placement, "sbp": (broadcast,) * x.placement.ndim}


def _reflections_of(q: torch.Tensor) -> torch.Tensor:
    """The matrix of which an orthogonal one is the product of reflections, with their signs."""
    found, tau = torch.geqrf(q)
    diagonal = found.diagonal(0, -2, -1)
    diagonal.sign_()
    diagonal[tau == 0.0] *= -1
    return found


def _orthonormal(x: torch.Tensor) -> torch.Tensor:
    """An orthonormal basis of the columns of x, with their signs."""
    reflections, tau = torch.geqrf(x)
    q: torch.Tensor = torch.linalg.householder_product(reflections, tau)
    return q * reflections.diagonal(0, -2, -1).sgn().unsqueeze(-2)


def _is_orthogonal(q: torch.Tensor) -> bool:
    one = torch.eye(q.shape[-1], dtype=q.dtype, device=q.device).expand(*q.shape)
    near = 10 * q.shape[-2] * torch.finfo(q.dtype).eps
    return torch.allclose(q.mH @ q, one, atol=near)


def orthogonal(
    module: M,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> M:
    """Parametrize a weight so that its rows, or its columns if it has more rows, are orthonormal.

    `orthogonal_map` is "matrix_exp", "cayley" or "householder"; the default is the first for
    square and complex matrices, and the last for others. With `use_trivialization` any such matrix
    may be assigned. Every rank computes the whole matrix. Raises OnefoldValueError for a weight of
    fewer than 2 dims and for another map.
    """
    weight = tensor_named(module, name)
    if weight.ndim < 2:
        raise OnefoldValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1] or weight.is_complex()
        orthogonal_map = "matrix_exp" if square else "householder"
    if orthogonal_map not in _MAPS:
        raise OnefoldValueError(
            "orthogonal_map has to be one of matrix_exp, cayley, householder. Got "
            f"{orthogonal_map!r}"
        )
    made = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)
