"""The losses that a job of the first generation trains with."""

from __future__ import annotations

from ..errors import OnefoldTypeError
from .blob import Blob
from .tracing import tracing


def add_loss(loss: Blob) -> None:
    """Train with this loss, too; how is said by `config.train`."""
    job = tracing("losses.add_loss")
    if not isinstance(loss, Blob):
        raise OnefoldTypeError(f"add_loss needs a blob, but got {type(loss).__name__}")
    job.add_losses([loss])
