"""Loads and saves weights: torch's state dicts, safetensors files, Hugging Face's shards."""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from ..distributed.collectives import gather_objects
from ..distributed.world import world
from ..engine.grad_mode import no_grad
from ..engine.meta import Box, Meta
from ..engine.tensor import Tensor
from ..env import TIMEOUT
from ..errors import (
    CheckpointError,
    MissingFileError,
    OnefoldError,
    OnefoldTypeError,
    OnefoldValueError,
)
from ..nn.module import Module
from ..nn.module_state import IncompatibleKeys
from .pieces import within
from .safetensors_format import Header, opened, read_box, read_header
from .sharded_reader import assembled, check_fits, laid_out
from .sharded_writer import Writer, lay_out
from .training_state import agreed, digest, raise_first, shard_bytes
from .value_tree import Description

Source: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]
Rename: TypeAlias = Mapping[str, str]


class Stored(NamedTuple):
    """A tensor of a file or dict, of which parts can be read."""

    where: str  # for messages
    dtype: torch.dtype
    shape: tuple[int, ...]
    read: Callable[[Box], torch.Tensor]


@no_grad
def load_weights(
    module: Module,
    source: Source,
    *,
    rename: Rename | None = None,
    strict: bool = True,
    cast: bool = False,
    allow_nan: bool = False,
) -> IncompatibleKeys:
    r"""Give a module of any layout the weights of a file, a folder, or a state dict of torch.

    `source` is a safetensors file, a folder in Hugging Face's sharded format, a file of
    `torch.save`, or a dict of tensors. From files each process reads the slices that it holds.
    `rename` maps regular expressions to replacements, which are applied in order to the names of
    the source (`re.sub`); the results are the module's names. A parameter that the source lacks
    takes the value of another name of the same parameter (tied weights). `strict=False` ignores
    names that only one side has. `cast` rounds to a narrower floating dtype of the module.

    Everything is checked before anything changes. Raises CheckpointError, on every process, for a
    wrong shape, a dtype that does not hold every value (int64 into float32), NaN (unless
    `allow_nan`) and what cannot be read, and OnefoldRuntimeError for missing and unknown names.

    >>> import onefold as flow
    >>> import torch
    >>> layer = flow.nn.Linear(2, 2)
    >>> weights = {"model.w": torch.eye(2), "model.b": torch.zeros(2)}
    >>> table = {r"^model\.": "", r"^w$": "weight", r"^b$": "bias"}
    >>> flow.checkpoint.load_weights(layer, weights, rename=table)
    <All keys matched successfully>
    """
    if not isinstance(module, Module):
        raise OnefoldTypeError(f"load_weights needs a Module, but got {type(module).__name__}")
    problem = ""
    state: dict[str, Tensor] = {}
    with ExitStack() as stack:
        try:
            found = renamed(_opened(source, stack), rename)
            live = {
                name: x
                for name, x in module.state_dict(keep_vars=True).items()
                if isinstance(x, Tensor)
            }
            _fill_tied(found, live)
            for name, stored in found.items():
                target = live.get(name)
                meta = None if target is None else target.meta
                ignored = target is None and not strict
                state[name] = _read(stored, meta, cast, allow_nan or ignored)
        except OnefoldError as error:
            if not world().launched:
                raise
            problem = str(error)
    if world().launched:
        raise_first(gather_objects(problem, tuple(range(world().size))))
    return module.load_state_dict(state, strict)


def renamed(values: Mapping[str, Any], table: Rename | None) -> dict[str, Any]:
    r"""The values under other names: regular expressions and their replacements, in order.

    Raises OnefoldValueError where two names become one, or for a bad expression.

    >>> renamed({"h.0.w": 1, "ln": 2}, {r"^h\.(\d+)": r"blocks.\1"})
    {'blocks.0.w': 1, 'ln': 2}
    """
    found: dict[str, Any] = {}
    before: dict[str, str] = {}
    for name, value in values.items():
        new = name
        for pattern, replacement in (table or {}).items():
            try:
                new = re.sub(pattern, replacement, new)
            except re.error as error:
                raise OnefoldValueError(
                    f"rename: {pattern!r} -> {replacement!r} is not a regular expression with its "
                    f"replacement: {error}"
                ) from error
        if new in found:
            raise OnefoldValueError(f"rename: {before[new]!r} and {name!r} both become {new!r}")
        found[new], before[new] = value, name
    return found


def _fill_tied(found: dict[str, Any], live: Mapping[str, Tensor]) -> None:
    """Let names that the source lacks have the value of another name of the same tensor."""
    given = {id(live[name]): found[name] for name in found if name in live}
    for name, tensor in live.items():
        if name not in found and id(tensor) in given:
            found[name] = given[id(tensor)]


def _read(stored: Stored, target: Meta | None, cast: bool, allow_nan: bool) -> Tensor:
    if target is not None:
        both_floating = cast and stored.dtype.is_floating_point and target.dtype.is_floating_point
        fits = target.like(dtype=stored.dtype) if both_floating else target
        check_fits(stored.where, stored.dtype, stored.shape, fits)

    def read(boxes: list[Box]) -> list[torch.Tensor]:
        parts = [stored.read(box) for box in boxes]
        floating = stored.dtype.is_floating_point or stored.dtype.is_complex
        if floating and not allow_nan and any(_has_nan(part) for part in parts):
            raise CheckpointError(
                f"{stored.where} has NaN, which no weights should have; pass allow_nan=True to "
                "take it"
            )
        return parts

    return assembled(laid_out(stored.shape, stored.dtype, target), read)


def _has_nan(value: torch.Tensor) -> bool:
    wide = value.float() if value.dtype.itemsize == 1 else value
    return bool(wide.isnan().any())


# Sources.


def _opened(source: Source, stack: ExitStack) -> dict[str, Stored]:
    if isinstance(source, Mapping):
        return {name: _of_value(name, x, "the given dict") for name, x in source.items()}
    path = Path(source)
    if path.is_dir():
        found: dict[str, Stored] = {}
        for part, names in _files_of(path):
            content = _opened(part, stack)
            lacking = [name for name in names if name not in content]
            if lacking:
                raise CheckpointError(f"{part} has no tensor {lacking[0]!r}, which the index names")
            found |= {name: content[name] for name in names or content}
        return found
    if not path.exists():
        raise MissingFileError(f"load_weights: there is no file {str(path)!r}")
    file = stack.enter_context(opened(path))
    if os.pread(file, 2, 0) in (b"PK", b"\x80\x02"):
        return _of_torch(path)
    header = read_header(file, path)
    return {name: _of_entry(file, header, name, path) for name in header.entries}


def _files_of(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """The files of a folder, with the names of their tensors where there is an index."""
    indexes = [folder / "model.safetensors.index.json", *sorted(folder.glob("*.index.json"))]
    for index in indexes:
        if index.exists():
            yield from _indexed(index)
            return
    whole = [folder / "model.safetensors", *folder.glob("*.safetensors"), *folder.glob("*.bin")]
    whole = [path for path in dict.fromkeys(whole) if path.exists()]
    if len(whole) != 1:
        raise CheckpointError(
            f"{folder} has no index (*.safetensors.index.json) and "
            f"{len(whole) or 'no'} files of weights; name one file"
        )
    yield whole[0], []


def _indexed(index: Path) -> Iterator[tuple[Path, list[str]]]:
    try:
        places = json.loads(index.read_text())["weight_map"]
        files: dict[str, list[str]] = {}
        for name, file in places.items():
            files.setdefault(str(file), []).append(name)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{index} is damaged, or not an index of weights: {error}") from error
    for file, names in files.items():
        path = index.parent / file
        if Path(file).name != file or not path.is_file():
            raise CheckpointError(f"{path} is missing; by {index.name} it holds {names[0]!r}")
        yield path, names


def _of_entry(file: int, header: Header, name: str, path: Path) -> Stored:
    entry = header.entries[name]
    read = partial(read_box, file, header, name, path=path)
    return Stored(f"{path}: {name!r}", entry.dtype, entry.shape, read)


def _of_torch(path: Path) -> dict[str, Stored]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"{path} is damaged, or holds more than tensors, numbers and containers: {error}"
        ) from error
    if not isinstance(content, Mapping):
        raise CheckpointError(f"{path} holds a {type(content).__name__}, not a dict of tensors")
    return {name: _of_value(name, value, str(path)) for name, value in content.items()}


def _of_value(name: str, value: object, where: str) -> Stored:
    if isinstance(value, Tensor):
        value = value.to_torch()
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    if not isinstance(value, torch.Tensor):
        raise CheckpointError(
            f"{where}: {name!r} is a {type(value).__name__}, but weights are tensors by name; pick "
            "the dict of weights out of it first"
        )
    tensor = value.detach()
    start = (0,) * tensor.ndim
    shape = tuple(tensor.shape)
    return Stored(
        f"{where}: {name!r}", tensor.dtype, shape, lambda box: tensor[within(box, (start, shape))]
    )


# Out.


@no_grad
def save_weights(
    module: Module,
    folder: str | os.PathLike[str],
    *,
    rename: Rename | None = None,
    max_shard_size: int | str = "5GB",
) -> Path:
    """Write a module's weights into a new folder, in Hugging Face's sharded format.

    Every process calls this, and writes the parts that it is the first rank to hold. `rename` maps
    the module's names to those in the files, as in `load_weights`. The folder is written
    under a temporary name and renamed when it is complete. Raises CheckpointError if it exists
    already, or cannot be written.
    """
    here = world()
    path = Path(folder).absolute()
    problem = ""
    described = Description(None)
    limit = 0
    try:
        if path.exists():
            raise CheckpointError(f"save_weights: {path} already exists; name a new folder")
        limit = shard_bytes(max_shard_size)
        state = module.state_dict(keep_vars=True).items()
        described = Description(renamed({k: x for k, x in state if isinstance(x, Tensor)}, rename))
        if not here.rank:
            path.parent.mkdir(parents=True, exist_ok=True)
    except (OnefoldError, OSError) as error:
        if not here.launched or here.planned:
            raise
        problem = str(error)
    nonce = agreed(problem, [str(path), 0, {"model": digest(described)}])
    layout = lay_out(0, {"model": described}, limit, here.rank)
    ranks = here.size if here.launched else 1
    problem = ""
    try:
        Writer(path, layout, nonce, ranks, here.rank or 0, None, TIMEOUT.read()).run()
    except CheckpointError as error:
        problem = str(error)
    raise_first(gather_objects(problem, tuple(range(ranks))) if here.launched else [problem])
    return path
