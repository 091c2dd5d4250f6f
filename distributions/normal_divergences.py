"""KL divergences of multivariate normal distributions, also of low rank."""

from __future__ import annotations

from .. import linalg
from ..engine.tensor import Tensor
from ..errors import ShapeError
from .covariance_parameters import half_log_det, inverse_of_tril, squared_distance_of
from .kl import register_kl
from .lowrank_multivariate_normal import (
    LowRankMultivariateNormal,
    low_rank_distance,
    low_rank_log_det,
)
from .multivariate_normal import MultivariateNormal

Either = MultivariateNormal | LowRankMultivariateNormal


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _to_full(p: Either, q: MultivariateNormal) -> Tensor:
    _check_events(p, q)
    factor = q.scale_tril
    trace = _trace(factor, _spread(p))
    distance = squared_distance_of(factor, q.loc - p.loc)
    return half_log_det(factor) - _half_log_det_of(p) + 0.5 * (trace + distance - _size(p))


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _to_low_rank(p: Either, q: LowRankMultivariateNormal) -> Tensor:
    _check_events(p, q)
    log_det = 0.5 * low_rank_log_det(q._d, q._tril)
    distance = low_rank_distance(q._w, q._d, q.loc - p.loc, q._tril)
    # The trace of (W W^T + D)^-1 P, by Woodbury's identity.
    scaled = q._w.transpose(-1, -2) / q._d.unsqueeze(-2)
    solved = linalg.solve_triangular(q._tril, scaled, upper=False)
    spread = _spread(p)
    trace = (spread.square().sum(-1) / q._d).sum(-1) - _of_all(solved @ spread)
    return log_det - _half_log_det_of(p) + 0.5 * (trace + distance - _size(p))


def _check_events(p: Either, q: Either) -> None:
    if p.event_shape != q.event_shape:
        raise ShapeError(
            "KL-divergence between two Multivariate Normals with different event shapes cannot be "
            f"computed: {tuple(p.event_shape)} and {tuple(q.event_shape)}"
        )


def _size(p: Either) -> int:
    return p.event_shape[0]


def _spread(p: Either) -> Tensor:
    """A root of the covariance."""
    spread: Tensor = p.scale_tril
    return spread


def _half_log_det_of(p: Either) -> Tensor:
    if isinstance(p, LowRankMultivariateNormal):
        return 0.5 * low_rank_log_det(p._d, p._tril)
    return half_log_det(p._factor)


def _trace(factor: Tensor, spread: Tensor) -> Tensor:
    """The trace of (L L^T)^-1 S S^T."""
    return _of_all(inverse_of_tril(factor) @ spread)


def _of_all(matrix: Tensor) -> Tensor:
    return matrix.square().sum((-1, -2))
