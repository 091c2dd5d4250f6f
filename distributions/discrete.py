"""The two forms in which probabilities are given to a discrete distribution."""

from __future__ import annotations

from ..errors import OnefoldValueError
from .distribution import Parameter


def one_of(what: str, probs: Parameter | None, logits: Parameter | None) -> tuple[str, Parameter]:
    """The name and the value of the one that is given; OnefoldValueError for both or none."""
    if probs is not None and logits is None:
        return "probs", probs
    if logits is not None and probs is None:
        return "logits", logits
    raise OnefoldValueError(
        f"{what}: give either probs or logits, but got {'none' if probs is None else 'both'}"
    )
