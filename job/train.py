"""Checkpoints of a program's variables and of its optimizers' state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..checkpoint.save_load import load, save
from ..distributed.collectives import barrier
from ..distributed.world import world
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError, warn
from .job import Job
from .session import session
from .variables import initialize, set_value

_FILE = "variables.safetensors"


class MissingVariableWarning(UserWarning):
    """A variable is not in what was loaded, and keeps the value it had."""


class CheckPoint:
    """Initializes, saves and loads all variables of a program.

    Example:
        check_point = flow.train.CheckPoint()
        check_point.init()
        ...
        check_point.save("./after_epoch_1")
    """

    def init(self) -> None:
        """Let all variables begin as their initializers say."""
        session.start()
        for variable in session.variables.values():
            if session.initialized:
                initialize(variable)
        session.initialized = True

    def save(self, path: str | Path) -> None:
        """Write all variables, and what the optimizers keep, into the folder `path`.

        Raises OnefoldValueError where there is such a checkpoint already.
        """
        session.start()
        file = Path(path) / _FILE
        if file.exists():
            raise OnefoldValueError(f"there is a checkpoint in {path} already; name a new folder")
        content = {
            "variables": {name: _whole(v.tensor) for name, v in session.variables.items()},
            "jobs": {name: _kept(job) for name, job in session.jobs.items()},
        }
        here = world()
        if not here.launched or here.rank == 0:
            file.parent.mkdir(parents=True, exist_ok=True)
            save(content, file)
        if here.launched:
            barrier(tuple(range(here.size)))

    def load(self, path: str | Path) -> None:
        """Read what `save` wrote. A variable that is not in it keeps its value, with a warning.

        Raises OnefoldValueError for a folder without a checkpoint, a damaged one, and other shapes;
        nothing is changed then.
        """
        session.start()
        content = _read(Path(path) / _FILE)
        arrays = _fitting(content["variables"])
        jobs = {session.jobs[n]: state for n, state in content["jobs"].items() if n in session.jobs}
        before = {job: job.state() for job, state in jobs.items() if state}
        try:
            for job in before:
                job.restore(jobs[job])
        except BaseException:
            for job, state in before.items():
                job.restore(state)
            raise
        _set(arrays)


def load_variables(values: Mapping[str, object], ignore_mismatch: bool = True) -> None:
    """Give variables the values of arrays, by name.

    Names that no job uses are passed over, and variables that are not named warn. Raises
    OnefoldValueError for other shapes, and, without `ignore_mismatch`, for names that do not match;
    nothing is changed then.
    """
    session.start()
    known = session.variables
    missing, unknown = known.keys() - values.keys(), values.keys() - known.keys()
    if not ignore_mismatch and (missing or unknown):
        raise OnefoldValueError(
            f"the values are for other variables: missing are {sorted(missing)}, unknown are "
            f"{sorted(unknown)}"
        )
    _set(_fitting(values))


def _fitting(values: Mapping[str, object]) -> dict[str, torch.Tensor]:
    """The values of known variables. Raises OnefoldValueError for another shape than theirs."""
    known = session.variables
    arrays = {name: torch.as_tensor(values[name]) for name in known if name in values}
    for name, array in arrays.items():
        if tuple(array.shape) != tuple(known[name].tensor.shape):
            raise OnefoldValueError(
                f"the variable {name!r} has shape {tuple(known[name].tensor.shape)}, but its value "
                f"has shape {tuple(array.shape)}; load what was saved of this network, or give the "
                "variable another name"
            )
    return arrays


def _set(arrays: Mapping[str, torch.Tensor]) -> None:
    """Set variables, with a warning for those that keep their value."""
    for name, array in arrays.items():
        set_value(session.variables[name], array)
    missing = session.variables.keys() - arrays.keys()
    if missing:
        warn(
            f"no value was given for {', '.join(sorted(missing))}: they keep theirs",
            MissingVariableWarning,
        )
    session.initialized = True


def read_variables(path: str | Path) -> dict[str, torch.Tensor]:
    """The variables in a folder that `CheckPoint.save` wrote; raises as `load` does."""
    return dict(_read(Path(path) / _FILE)["variables"])


def _kept(job: Job) -> dict[str, Any]:
    return {
        key: _whole(value) if isinstance(value, Tensor) else value
        for key, value in job.state().items()
    }


def _whole(tensor: Tensor) -> torch.Tensor:
    whole: torch.Tensor = tensor.detach().to_torch()
    return whole


def _read(file: Path) -> dict[str, Any]:
    if not file.exists():
        raise OnefoldValueError(
            f"{file.parent} has no checkpoint: there is no {_FILE} in it; CheckPoint().save(path) "
            "writes one"
        )
    content = load(file)
    if isinstance(content, dict) and set(content) == {"variables", "jobs"}:
        return content
    raise OnefoldValueError(f"{file} is not a checkpoint of a job program")


class SimpleCheckPointManager:
    """Numbered checkpoints in one folder: snapshot_0, snapshot_1, ..."""

    def __init__(self, root_path: str | Path, prefix: str = "snapshot_") -> None:
        if not prefix or "/" in prefix:
            raise OnefoldTypeError(f"prefix must be the beginning of a name, but got {prefix!r}")
        self.root = Path(root_path)
        self.prefix = prefix

    def list_checkpoints(self) -> list[str]:
        """The names of the checkpoints, the oldest first."""
        found = [
            path.name
            for path in self.root.glob(f"{self.prefix}*")
            if path.name.removeprefix(self.prefix).isdecimal() and (path / _FILE).exists()
        ]
        return sorted(found, key=lambda name: int(name.removeprefix(self.prefix)))

    def latest_checkpoint(self) -> str | None:
        """The path of the newest; None if there is none."""
        names = self.list_checkpoints()
        return str(self.root / names[-1]) if names else None

    def initialize_or_restore(self) -> None:
        """Load the newest checkpoint, or let all variables begin."""
        latest = self.latest_checkpoint()
        if latest is None:
            CheckPoint().init()
        else:
            CheckPoint().load(latest)

    def save(self) -> str:
        """Write the next checkpoint; its path."""
        names = self.list_checkpoints()
        number = int(names[-1].removeprefix(self.prefix)) + 1 if names else 0
        path = self.root / f"{self.prefix}{number}"
        CheckPoint().save(path)
        return str(path)
