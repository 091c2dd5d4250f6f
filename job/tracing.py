"""The job that is being traced, for layers and optimizers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ..errors import OnefoldRuntimeError, user_line
from .accumulation import Accumulation

if TYPE_CHECKING:
    from .blob import Blob


class Traced(Protocol):
    """A job while it is traced."""

    name: str
    trains: bool
    first_generation: bool

    @property
    def default_dtype(self) -> torch.dtype: ...

    used: dict[str, Any]  # variables, by name
    accumulation: Accumulation

    def use(self, variable: Any, model_name: str | None, penalty: Any) -> None: ...

    def unique_name(self, kind: str) -> str: ...

    def add_losses(self, losses: Sequence[Blob]) -> None: ...

    def set_optimizer(self, optimizer: Any) -> None: ...

    def watch(self, blob: Blob, handler: Any, gradient: bool) -> None: ...


_current: list[Traced] = []


def tracing(what: str) -> Traced:
    """The job that is being traced. Raises OnefoldRuntimeError outside of one."""
    if not _current:
        raise OnefoldRuntimeError(
            f"{what} is a part of a job: call it in a function that is decorated with "
            f"@flow.global_function. It was called at {user_line()}"
        )
    return _current[-1]


def is_tracing() -> bool:
    """Whether a job is being traced."""
    return bool(_current)


@contextmanager
def trace(job: Traced) -> Iterator[None]:
    """The block in which `job` is traced."""
    _current.append(job)
    try:
        yield
    finally:
        _current.pop()
