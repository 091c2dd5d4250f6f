"""torch.distributed.checkpoint: state dicts in a folder, from any layout into any other."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ..distributed.collectives import gather_objects
from ..distributed.world import virtual_world, world
from ..engine.grad_mode import no_grad
from ..engine.tensor import Tensor
from ..errors import (
    CheckpointError,
    OnefoldError,
    OnefoldTypeError,
    OnefoldValueError,
    RankMismatch,
)
from .background import Saving
from .live_state import Part, Stateful, load_all, parts_of, with_states
from .manifest import FILE, read_manifest
from .merged_states import merged
from .save_load import load as load_file, save as save_file
from .training_state import (
    Folder,
    load as load_all_values,
    raise_first,
    read_values,
    value_at,
    write,
)
from .value_tree import Description

__all__ = [
    "AsyncSave",
    "CheckpointException",
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "FileSystemReader",
    "FileSystemWriter",
    "Stateful",
    "async_save",
    "dcp_to_torch_save",
    "load",
    "load_state_dict",
    "save",
    "save_state_dict",
    "torch_save_to_dcp",
]

__path__: list[str] = []  # compat/import_paths.py leads to what is below it

CheckpointException = CheckpointError  # torch's name of it

StateDict: TypeAlias = MutableMapping[str, Any]

# The section of what no dict or object holds, such as the tensors of a model's own state dict.
_REST = "values"
_TORCHS = ".metadata"


class FileSystemWriter:
    """The folder that `save` writes; the arguments about files and threads have no effect."""

    def __init__(
        self,
        path: Folder,
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
        **options: object,
    ) -> None:
        self.path = path
        self.overwrite = overwrite


class FileSystemReader:
    """The folder that `load` reads."""

    def __init__(self, path: Folder, **options: object) -> None:
        self.path = path


@dataclass
class DefaultSavePlanner:
    """No effect: nested dicts are written as they are."""

    flatten_state_dict: bool = True
    flatten_sharded_tensors: bool = True
    dedup_replicated_tensors: bool | None = None
    dedup_save_to_lowest_rank: bool = False
    enable_plan_caching: bool = False


@dataclass
class DefaultLoadPlanner:
    """With `allow_partial_load` what a checkpoint lacks stays as it is."""

    flatten_state_dict: bool = True
    flatten_sharded_tensors: bool = True
    allow_partial_load: bool = False


class AsyncSave:
    """What `async_save` gives: `result()` waits for the checkpoint. Every process calls it."""

    def __init__(self, saving: Saving) -> None:
        self._saving = saving
        self.upload_completion = self.staging_completion = self

    def done(self) -> bool:
        """Whether nothing is written any more."""
        return self._saving.done()

    def result(self, timeout: float | None = None) -> Path:
        """The folder, once it is complete. Raises CheckpointError where it cannot be written.

        `timeout` has no effect: ranks wait as long as ONEFOLD_TIMEOUT says.
        """
        return self._saving.wait()

    wait = result


def save(
    state_dict: StateDict,
    *,
    checkpoint_id: Folder | None = None,
    storage_writer: FileSystemWriter | None = None,
    planner: object = None,
    process_group: object = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> None:
    """Write a state dict into the folder `checkpoint_id`; every process of the job calls this.

    It holds tensors, numbers and strings in dicts, modules, optimizers and other objects with
    `state_dict` and `load_state_dict`. Each process writes the parts of global tensors that it is
    the first to hold. Processes may have tensors of other names, such as those of their stages of a
    pipeline; local tensors of one name are taken to be equal. A checkpoint that is in the folder is
    replaced when the new one is complete. The folder is one of `flow.checkpoint.save`, not of
    torch. With `no_dist` one process alone calls this, whose state has no global tensors. The other
    arguments have no effect. Raises CheckpointError, on every process, where it cannot be written,
    OnefoldValueError for a folder that holds other files and for global tensors with `no_dist`, and
    RankMismatch where processes have different values of one name.

    >>> import onefold as flow, tempfile
    >>> state = {"model": flow.nn.Linear(2, 2).state_dict(), "epoch": 3}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(state, checkpoint_id=folder + "/last")
    ...     new = {"model": flow.nn.Linear(2, 2).state_dict(), "epoch": 0}
    ...     load(new, checkpoint_id=folder + "/last")
    >>> new["epoch"], flow.equal(new["model"]["weight"], state["model"]["weight"])
    (3, True)
    """
    with _alone("save", state_dict, no_dist):
        _begin(state_dict, checkpoint_id, storage_writer, False)


def async_save(
    state_dict: StateDict,
    *,
    checkpoint_id: Folder | None = None,
    storage_writer: FileSystemWriter | None = None,
    planner: object = None,
    process_group: object = None,
    **options: object,
) -> AsyncSave:
    """`save` in the background; `result()` of what it gives waits, and so does the next save.

    The values are those of this moment, also where optimizers change them afterwards.
    """
    return AsyncSave(_begin(state_dict, checkpoint_id, storage_writer, True))


@no_grad
def _begin(
    state_dict: StateDict, checkpoint: Folder | None, writer: object, in_background: bool
) -> Saving:
    folder = _folder_of("save", checkpoint, writer, FileSystemWriter)
    _check_state("save", state_dict)

    def check() -> None:
        if folder.exists() and not _may_replace(folder, getattr(writer, "overwrite", True)):
            raise OnefoldValueError(
                f"distributed.checkpoint.save: {folder} holds other files, or a checkpoint that "
                "overwrite=False keeps; give checkpoint_id another folder"
            )
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot write {folder}: {error.strerror}") from error

    sections = _sections(state_dict)
    with suppress(RankMismatch):  # which all processes raise together
        return write(sections, folder, 0, check, async_=in_background, replaces=True)
    return write(merged(sections), folder, 0, check, async_=in_background, replaces=True)


def _may_replace(folder: Path, overwrite: bool) -> bool:
    if not folder.is_dir():
        return False
    names = os.listdir(folder)
    return not names or (overwrite and FILE in names)


@no_grad
def load(
    state_dict: StateDict,
    *,
    checkpoint_id: Folder | None = None,
    storage_reader: FileSystemReader | None = None,
    planner: DefaultLoadPlanner | None = None,
    process_group: object = None,
    no_dist: bool = False,
) -> None:
    """Load a checkpoint of `save` into a state dict, in place; every process calls this.

    With `no_dist` one process alone does, for a state without global tensors.

    Tensors of the state dict get values in the layout that they have, objects are given them by
    `load_state_dict`, and numbers and strings are replaced. What the state dict does not name is
    not loaded. Everything is read and checked before the first tensor changes. Raises
    CheckpointError, on every process, for what the checkpoint lacks, unless the planner has
    `allow_partial_load`, and for a folder that is damaged or was written by torch.
    """
    folder = _folder_of("load", checkpoint_id, storage_reader, FileSystemReader)
    _check_state("load", state_dict)
    with _alone("load", state_dict, no_dist):
        _load(state_dict, folder, planner)


def _load(state_dict: StateDict, folder: Path, planner: object) -> None:
    sections = _sections(state_dict)
    partly = getattr(planner, "allow_partial_load", False)
    problem = ""
    parts: list[tuple[Part, Any]] = []
    values: dict[str, Any] = {}
    try:
        _check_format(folder)
        if partly:
            there = read_manifest(folder).sections
            sections = {key: value for key, value in sections.items() if key in there}
        live = parts_of(sections)
        _, values = read_values(folder, sections, live)
        for part in live:
            try:
                parts.append((part, value_at(values, part)))
            except CheckpointError:
                if not partly:
                    raise
        lacking = [] if partly else [*_lacking(sections, values, ())]
        if lacking:
            raise CheckpointError(
                f"Missing key in checkpoint state_dict: {lacking[0]} is not in {folder}; leave it "
                "out, or pass planner=DefaultLoadPlanner(allow_partial_load=True)"
            )
    except OnefoldError as error:
        if not world().launched:
            raise
        problem = str(error)
    if world().launched:
        raise_first(gather_objects(problem, tuple(range(world().size))))
    load_all(parts)
    _replace(state_dict, {**values.get(_REST, {}), **values})


def save_state_dict(
    state_dict: StateDict, storage_writer: FileSystemWriter, *args: object, **kwargs: object
) -> None:
    """The older name of `save`."""
    save(state_dict, storage_writer=storage_writer)


def load_state_dict(
    state_dict: StateDict, storage_reader: FileSystemReader, *args: object, **kwargs: object
) -> None:
    """The older name of `load`."""
    load(state_dict, storage_reader=storage_reader)


def dcp_to_torch_save(dcp_checkpoint_dir: Folder, torch_save_path: Folder) -> None:
    """Write what is in the folder of a checkpoint into one file that `torch.load` reads.

    One process calls this, as it holds all values.
    """
    with virtual_world():
        values = load_all_values(dcp_checkpoint_dir)
        values.pop("step")
        rest = values.pop(_REST, {})
        save_file({**rest, **values}, torch_save_path, format="torch")


def torch_save_to_dcp(torch_save_path: Folder, dcp_checkpoint_dir: Folder) -> None:
    """Write what is in a file of `torch.save`, or of `flow.save`, into a folder for `load`.

    One process calls this, as it holds all values.
    """
    with virtual_world():
        save(load_file(torch_save_path), checkpoint_id=dcp_checkpoint_dir)


def _alone(function: str, state: StateDict, alone: bool) -> AbstractContextManager[object]:
    """A block in which this process communicates with no other, if it is alone."""
    if not alone or not world().launched:
        return nullcontext()
    _check_state(function, state)
    for name, x in Description(with_states(dict(state))).tensors.items():
        if isinstance(x, Tensor) and x.is_global:
            raise OnefoldValueError(
                f"distributed.checkpoint.{function}: {name} is a global tensor, {x.meta!r}, of "
                "which several processes have parts; leave no_dist=True out, and call this on all"
            )
    return virtual_world()


def _folder_of(function: str, checkpoint: Folder | None, storage: Any, kind: type) -> Path:
    if storage is not None and not isinstance(storage, kind):
        raise OnefoldTypeError(
            f"distributed.checkpoint.{function} takes a {kind.__name__} of onefold, but got "
            f"{type(storage).__name__}"
        )
    found = checkpoint if checkpoint is not None else getattr(storage, "path", None)
    if found is None:
        raise OnefoldValueError(
            f"distributed.checkpoint.{function}: no folder was given; pass checkpoint_id=, or a "
            f"{kind.__name__}(path)"
        )
    return Path(found).absolute()


def _check_state(function: str, state: object) -> None:
    if not isinstance(state, MutableMapping) or not all(isinstance(key, str) for key in state):
        raise OnefoldTypeError(
            f"distributed.checkpoint.{function} takes a dict from names to tensors, dicts of them "
            "and objects with state_dict, such as {'model': model.state_dict()}, but got "
            f"{type(state).__name__}"
        )


def _check_format(folder: Path) -> None:
    if (folder / _TORCHS).exists() and not (folder / FILE).exists():
        raise CheckpointError(
            f"{folder} was written by torch; convert it with `python -m "
            "torch.distributed.checkpoint.format_utils dcp_to_torch`, and read the file by "
            "flow.load"
        )


def _sections(state: StateDict) -> dict[str, Any]:
    """The state by sections, each with files of its own: dicts and objects, and all the rest."""
    found: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for key, value in state.items():
        own = isinstance(value, dict) or (isinstance(value, Stateful) and not _is_tensor(value))
        (found if own and key.isidentifier() and key not in (_REST, "step") else rest)[key] = value
    return {**found, _REST: rest} if rest else found


def _is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)


def _lacking(state: Any, values: Any, path: tuple[str, ...]) -> Iterator[str]:
    """The paths in a state of dicts that others lack."""
    for key, value in state.items():
        here = (*path, str(key))
        if not isinstance(values, dict) or key not in values:
            yield ".".join(here)
        elif isinstance(value, dict):
            yield from _lacking(value, values[key], here)


def _replace(state: Any, values: Any) -> None:
    """Put loaded numbers and strings in their places; tensors and objects have theirs."""
    for key, value in state.items():
        if not isinstance(values, dict) or key not in values:
            continue
        if isinstance(value, dict):
            _replace(value, values[key])
        elif not isinstance(value, (Tensor, Stateful)):
            state[key] = values[key]
