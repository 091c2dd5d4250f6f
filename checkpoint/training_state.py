"""save, load and latest: the state of a training run, from any layout into any other."""

from __future__ import annotations

import os
import re
import secrets
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ..distributed.collectives import gather_objects
from ..distributed.json_values import to_text
from ..distributed.world import world
from ..engine.grad_mode import no_grad
from ..engine.values import without_values
from ..env import TIMEOUT
from ..errors import (
    CheckpointError,
    OnefoldError,
    OnefoldTypeError,
    OnefoldValueError,
    RankMismatch,
)
from .background import Copies, Saving
from .live_state import Part, State, Target, load_all, parts_of, targets_of, with_states
from .manifest import FILE, Manifest, check_files, is_complete, numbered, read_manifest, step_folder
from .sharded_reader import Reader, TargetOf
from .sharded_writer import Layout, Writer, lay_out, remove_unfinished
from .value_tree import Description

Folder = str | os.PathLike[str]

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_copies = Copies()
_last: list[Saving] = []  # the one that may still be written


@no_grad
def save(
    dir: Folder,
    state: State,
    step: int | None = None,
    *,
    keep: int | None = None,
    async_: bool = False,
    max_shard_size: int | str = "5GB",
) -> Saving:
    """Write the state of a run into the folder `step-N` of `dir`, from any layout.

    `state` is a dict of modules, optimizers, schedules, scalers, graphs, loaders, generators,
    tensors, any object with `state_dict` and `load_state_dict`, and numbers and strings. Every
    process of the job calls this. Each writes the parts of tensors that it is the first rank to
    hold; nothing is gathered. The tensors of each key are in files of Hugging Face's sharded
    format. There are no incomplete checkpoints: a manifest with checksums is written last, and then
    the folder is renamed. `dir` must be one folder that all processes reach.

    `keep` removes all but the newest complete checkpoints. With `async_` the current values are
    copied and written in the background while training continues; the next step of an optimizer or
    graph changes them when they are copied. Until then nobody may write into their memory by other
    means, such as a numpy array of it. `wait()` of the result, or the next `save`, raises its
    errors. A file has at most `max_shard_size` bytes, or one tensor.

    Raises CheckpointError, on every process, where a file cannot be written, and RankMismatch where
    the processes have different states; there is no new checkpoint then. Raises OnefoldTypeError
    without a step, and OnefoldValueError if there is a checkpoint of this step already.

    >>> import onefold as flow, tempfile
    >>> model = flow.nn.Linear(2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saving = flow.checkpoint.save(folder, {"model": model, "epoch": 1}, step=10)
    ...     print(saving.path.name, flow.checkpoint.load(folder, {"model": model, "epoch": 0}))
    step-10 {'epoch': 1, 'step': 10}
    """
    if step is None:
        raise OnefoldTypeError(
            "checkpoint.save: no step was given, which names the folder `step-N` that it writes; "
            "call save(dir, state, step=N) with the number of steps done, or "
            "flow.save(state_dict, path) to write one file"
        )
    root = Path(dir).absolute()
    folder = step_folder(root, step) if type(step) is int else root

    def check() -> None:
        _check_options(root, step, keep)

    return write(state, folder, step, check, keep=keep, async_=async_, max_size=max_shard_size)


def write(
    state: State,
    folder: Path,
    step: int,
    check: Callable[[], None],
    *,
    keep: int | None = None,
    async_: bool = False,
    max_size: int | str = "5GB",
    replaces: bool = False,
) -> Saving:
    """Write a state into a folder, which with `replaces` may be that of a checkpoint; see `save`.

    An error that `check` raises is raised on every process.
    """
    for saving in _last[:]:
        _last.clear()
        if not saving.reported:
            saving.wait()
    here = world()
    if here.planned:
        raise without_values("checkpoint.save was called")
    problem = ""
    layout = Layout(Manifest(0))
    digests: dict[str, int] = {}
    try:
        check()
        limit = shard_bytes(max_size)
        parts_of(state)
        sections = {key: Description(with_states(value)) for key, value in state.items()}
        if here.launched:  # others compare theirs
            digests = {key: digest(described) for key, described in sections.items()}
    except OnefoldError as error:
        if not here.launched:
            raise
        problem = f"{type(error).__name__}: {error}"
    nonce = agreed(problem, [str(folder), step, digests])
    layout = lay_out(step, sections, limit, here.rank)
    copy = None
    if async_:
        layout.works, copy = _copies.of(layout.works)
    writer = Writer(
        folder,
        layout,
        nonce,
        here.size if here.launched else 1,
        here.rank or 0,
        keep,
        TIMEOUT.read(),
        replaces,
    )
    saving = Saving(writer.folder)
    saving.start(writer.run, copy)
    if async_:
        _last.append(saving)
    else:
        saving.wait()
    return saving


def _check_options(root: Path, step: int, keep: int | None) -> None:
    if type(step) is not int or step < 0:
        raise OnefoldValueError(f"checkpoint.save: step must be an integer >= 0, but got {step!r}")
    if keep is not None and (type(keep) is not int or keep < 1):
        raise OnefoldValueError(f"checkpoint.save: keep must be an integer >= 1, but got {keep!r}")
    folder = step_folder(root, step)
    if folder.exists():
        raise OnefoldValueError(
            f"checkpoint.save: {folder} already exists; save another step, another folder, or "
            "remove it"
        )
    if not world().rank:
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot write {root}: {error.strerror}") from error
        remove_unfinished(root)


def shard_bytes(size: int | str) -> int:
    """The number of bytes that a user named."""
    match = re.fullmatch(r"(\d+)\s*([A-Z]*)", str(size).upper())
    if match is None or match[2] not in _UNITS:
        raise OnefoldValueError(
            f"max_shard_size must be a number of bytes, or such as '5GB' or '500MB', not {size!r}"
        )
    return int(match[1]) * _UNITS[match[2]]


def digest(described: Description) -> int:
    """A number for the values that are no tensors, and for what the tensors are."""
    metas = [f"{name}: {getattr(leaf, 'meta', '')!r}" for name, leaf in described.tensors.items()]
    return zlib.crc32("\n".join([to_text(described.tree), *metas]).encode())


def agreed(problem: str, facts: list[Any]) -> str:
    """One word for all processes, when all want to save the same.

    `facts` are [dir, step, digests]. Collective. Raises CheckpointError for a problem, RankMismatch
    where facts differ.
    """
    nonce = secrets.token_hex(4)
    here = world()
    if not here.launched:
        return nonce
    mine: tuple[str, list[Any], str] = (problem, facts, nonce)
    gathered = gather_objects(mine, tuple(range(here.size)))
    raise_first([each for each, *_ in gathered])
    for rank, (_, theirs, _) in enumerate(gathered):
        for what, first, other in zip(
            ("dir", "step", "state"), gathered[0][1], theirs, strict=True
        ):
            if first != other:
                keys = [] if what != "state" else [k for k in first if first[k] != other.get(k)]
                raise RankMismatch(
                    f"checkpoint.save: ranks 0 and {rank} disagree on {what}"
                    + (f", key {keys[0]!r}: numbers and layouts must be equal" if keys else "")
                    + "; every process must save the same"
                )
    return gathered[0][2]


def raise_first(problems: list[str]) -> None:
    """Raise CheckpointError for the first problem of a rank, if there is one."""
    for rank, problem in enumerate(problems):
        if problem:
            raise CheckpointError(f"on rank {rank}, {problem}" if len(problems) > 1 else problem)


# Loading.


@no_grad
def load(dir: Folder, state: State | None = None) -> dict[str, Any]:
    """Restore a checkpoint into the objects of `state`; returns its other values, and "step".

    `dir` is the folder of a step, or one of several, of which the newest complete one is taken. The
    objects may have any layout, placement and number of processes, ZeRO or not: each process reads
    the slices that it holds. Keys that `state` does not name are not read. Without `state`, every
    value is returned, tensors as local ones.

    Everything is read and checked before the first object is changed. Raises CheckpointError, on
    every process, for a checkpoint that is incomplete or damaged, with the file and tensor, and for
    values that do not fit; then nothing has changed.
    """
    here = world()
    problem = ""
    parts: list[tuple[Part, Any]] = []
    found: dict[str, Any] = {}
    try:
        live = [] if state is None else parts_of(state)
        manifest, values = read_values(Path(dir).absolute(), state, live)
        parts = [(part, value_at(values, part)) for part in live]
        changed = {part.section for part in live}
        found = {key: value for key, value in values.items() if key not in changed}
    except OnefoldError as error:
        if not here.launched:
            raise
        problem = str(error)
    if here.launched:
        raise_first(gather_objects(problem, tuple(range(here.size))))
    load_all(parts)
    return {**found, "step": manifest.step}


def read_values(
    folder: Path, state: State | None, live: list[Part]
) -> tuple[Manifest, dict[str, Any]]:
    """The manifest in a folder, and the values of the keys of a state, laid out for its objects."""
    folder = find(folder)
    manifest = read_manifest(folder)
    wanted = list(manifest.sections if state is None else state)
    missing = [key for key in wanted if key not in manifest.sections]
    if missing:
        raise CheckpointError(
            f"{folder} has no {', '.join(map(repr, missing))}; it has "
            f"{', '.join(map(repr, manifest.sections)) or 'nothing'}"
        )
    check_files(folder, manifest, wanted)
    targets = _targets(live)
    with Reader(folder, manifest) as reader:
        return manifest, {
            section: reader.section(section, targets.get(section, _anywhere)) for section in wanted
        }


def _anywhere(name: str) -> Target | None:
    return None


def _targets(parts: list[Part]) -> dict[str, TargetOf]:
    """By section, where its tensors go."""
    found: dict[str, list[tuple[str, TargetOf]]] = {}
    for part in parts:
        found.setdefault(part.section, []).append((part.prefix, targets_of(part.live)))

    def of(known: list[tuple[str, TargetOf]], name: str) -> Target | None:
        leads = [(lead, target) for lead, target in known if name.startswith(lead)]
        if not leads:
            return None
        lead, target = max(leads, key=lambda pair: len(pair[0]))
        return target(name.removeprefix(lead))

    return {section: partial(of, known) for section, known in found.items()}


def value_at(values: Mapping[str, Any], part: Part) -> Any:
    """The replacement of a live object. Raises CheckpointError where there is none."""
    found: Any = values
    for key in part.path:
        if not isinstance(found, dict) or key not in found:
            name = ".".join(map(str, part.path))
            raise CheckpointError(
                f"the checkpoint has nothing for {name}: it was saved from another state"
            )
        found = found[key]
    return found


def find(folder: Path) -> Path:
    """The folder of a checkpoint: this one, or that of the newest complete step in it."""
    if (folder / FILE).exists() or not numbered(folder):
        read_manifest(folder)
        return folder
    newest = latest(folder)
    if newest is None:
        names = ", ".join(path.name for path in numbered(folder).values())
        raise CheckpointError(f"{folder} has no complete checkpoint; incomplete are: {names}")
    return Path(newest)


def latest(dir: Folder) -> str | None:
    """The folder of the newest complete checkpoint in `dir`; None if there is none.

    One that lacks its manifest or a file, or has a file that is too short, is skipped.
    `verify` also compares the checksums.
    """
    for folder in reversed(numbered(Path(dir)).values()):
        if is_complete(folder):
            return str(folder)
    return None


def verify(dir: Folder) -> None:
    """Read a whole checkpoint and compare all checksums; raises CheckpointError as `load` does."""
    folder = find(Path(dir).absolute())
    manifest = read_manifest(folder)
    check_files(folder, manifest, list(manifest.sections))
    with Reader(folder, manifest) as reader:
        reader.check_all()
