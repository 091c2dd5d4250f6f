"""The job that is being traced, for layers and optimizers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import OnefoldRuntimeError, user_line

if TYPE_CHECKING:
    from .job import Job

_current: list[Job] = []


def tracing(what: str) -> Job:
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
def trace(job: Job) -> Iterator[None]:
    """The block in which `job` is traced."""
    _current.append(job)
    try:
        yield
    finally:
        _current.pop()
