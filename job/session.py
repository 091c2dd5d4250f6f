"""Session: the state that all jobs of one program share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine.placement import Placement
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError
from .devices import Devices
from .initializers import Initializer

if TYPE_CHECKING:
    from .job import Job


@dataclass
class Variable:
    """A tensor that jobs share by name, and how it begins."""

    name: str
    tensor: Tensor
    initializer: Initializer
    random_seed: int | None
    is_new: bool = True  # not initialized yet


class Session:
    """The devices, jobs, variables and scopes of a program.

    Tracing waits until the program has set its devices: it begins when the first job is called,
    or variables are initialized, loaded or saved.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.devices = Devices()
        self.jobs: dict[str, Job] = {}
        self.variables: dict[str, Variable] = {}
        self.scopes: list[tuple[str | None, Placement | None]] = []
        self.initialized = False  # by CheckPoint().init() or .load()

    def define(self, job: Job) -> None:
        """Add a job. Raises OnefoldRuntimeError if there is one of this name."""
        if job.name in self.jobs:
            raise OnefoldRuntimeError(
                f"a job named {job.name!r} is defined already; rename this function, or begin a "
                "new session with flow.clear_default_session()"
            )
        self.jobs[job.name] = job

    def start(self) -> None:
        """Trace all jobs that were not traced yet, so that all variables are there."""
        for job in list(self.jobs.values()):
            job.trace()


session = Session()


def clear_default_session() -> None:
    """Forget all jobs, variables and device settings, as if the program began here."""
    session.clear()
