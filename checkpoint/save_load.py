"""save and load: one file that holds a pytree of tensors, numbers and strings, without pickle."""

from __future__ import annotations

import json
import os
import pickle
import tempfile
import zlib
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

from ..distributed.collectives import gather_objects
from ..distributed.json_values import Json, to_text
from ..distributed.world import world
from ..engine.convert import box, read_device
from ..engine.grad_mode import no_grad
from ..engine.meta import Meta
from ..engine.placement import Placement
from ..engine.sbp import broadcast
from ..engine.tensor import Tensor, from_shards
from ..engine.values import from_torch
from ..errors import (
    CheckpointError,
    MissingFileError,
    OnefoldError,
    OnefoldRuntimeError,
    OnefoldTypeError,
    OnefoldValueError,
)
from .safetensors_format import (
    Header,
    as_stored,
    bytes_of,
    from_stored,
    make_header,
    opened,
    read_box,
    read_header,
    stored,
)
from .value_tree import Description, Leaf, entries, read_dtype, restored

File = str | os.PathLike[str] | BinaryIO
_Moves = Mapping[str, str] | Callable[[torch.UntypedStorage, str], torch.UntypedStorage | None]
Where = str | int | torch.device | Placement | _Moves | None

_DESCRIPTION, _CHECKSUM = "onefold", "onefold.crc32"
_IN_FOLDER = "onefold.state"  # the file, where a folder is given
FORMATS = ("safetensors", "torch")


# Saving.


@no_grad
def save(
    obj: object,
    path_or_buffer: File | None = None,
    global_dst_rank: int | None = None,
    save_as_external_data: bool = False,
    *,
    format: str = "safetensors",
    f: File | None = None,
    pickle_module: object = None,
    pickle_protocol: int | None = None,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Write a pytree of tensors, numbers and strings in dicts, lists and tuples into one file.

    They may be state dicts of modules, optimizers and graphs. The file is a safetensors file, with
    the structure and checksums in its metadata; with `format="torch"` it is one that `torch.load`
    reads. It is written under a temporary name, and renamed when it is complete.

    With global tensors, every process calls this with the same `global_dst_rank`, the rank that
    gathers and writes; local tensors are an error then. Global tensors that this process holds
    whole, such as those of DistributedDataParallel, are written without it by whoever calls this.
    Raises OnefoldRuntimeError for others, OnefoldTypeError for what no state dict holds, and
    CheckpointError on every process where the file cannot be written. Whole training states of
    many ranks are saved without gathering by `checkpoint.save`.

    For a folder that is there, the file is `onefold.state` in it, and `load` finds it by the
    folder. `f` is torch's name of `path_or_buffer`. `save_as_external_data` and torch's arguments
    of pickles have no effect.

    >>> import onefold as flow
    >>> from io import BytesIO
    >>> file = BytesIO()
    >>> flow.save({"weight": flow.ones(2), "step": 3}, file)
    >>> flow.load(file)
    {'weight': tensor([1., 1.]), 'step': 3}
    """
    if format not in FORMATS:
        raise OnefoldValueError(f"save: format must be one of {FORMATS}, but got {format!r}")
    path_or_buffer = _file_of("save", path_or_buffer, f)
    _check_no_state(obj)
    described = Description(obj)
    leaves = described.tensors
    _check_leaves(leaves, global_dst_rank)
    here = world()
    writes = not here.launched or global_dst_rank is None or here.rank == global_dst_rank
    values = {}
    for name, leaf in leaves.items():
        value = _gathered(leaf, global_dst_rank)
        if writes:
            values[name] = value
    problem = ""
    if writes:
        try:
            _write(described.tree, values, path_or_buffer, format)
        except OSError as error:
            problem = f"save: cannot write {_named(path_or_buffer)}: {error.strerror or error}"
    if here.launched and global_dst_rank is not None:
        problem = "".join(gather_objects(problem, tuple(range(here.size))))
    if problem:
        raise CheckpointError(problem)


def _file_of(function: str, path: File | None, f: File | None) -> File:
    """The file, which torch names `f`."""
    if (path is None) == (f is None):
        raise OnefoldTypeError(f"{function}: pass one path or file, but got {path!r} and f={f!r}")
    return path if path is not None else cast(File, f)


def _in_folder(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The path, or if it is a folder, that of the file in it."""
    return Path(path) / _IN_FOLDER if Path(path).is_dir() else path


def _check_no_state(obj: object) -> None:
    if hasattr(obj, "state_dict"):
        raise OnefoldTypeError(
            f"save: got a {type(obj).__name__}; files hold values and no programs. Save its "
            "state_dict(), and pass that to load_state_dict() of a new one"
        )


def _check_leaves(leaves: Mapping[str, Leaf], rank: int | None) -> None:
    world_size = world().size
    if rank is not None and not (type(rank) is int and 0 <= rank < world_size):
        raise OnefoldValueError(
            f"save: global_dst_rank must be a rank, 0 to {world_size - 1}, but got {rank!r}"
        )
    for name, leaf in leaves.items():
        is_global = isinstance(leaf, Tensor) and leaf.is_global
        if isinstance(leaf, Tensor) and is_global and rank is None and not _is_whole(leaf):
            raise OnefoldRuntimeError(
                f"Please set global_dst_rank in flow.save to save global tensor: {name!r} is one, "
                f"and this process does not hold it whole ({leaf.meta!r})"
            )
        if not is_global and rank is not None:
            raise OnefoldRuntimeError(
                f"save: with global_dst_rank every tensor must be global, but {name!r} is not; "
                "make it global with to_global, or save it without global_dst_rank"
            )
        if isinstance(leaf, (Tensor, torch.Tensor)):
            stored(leaf.dtype, leaf.shape)


def _is_whole(x: Tensor) -> bool:
    return bool(x.shards) and all(sbp.is_broadcast for sbp in x.sbp)


def _gathered(leaf: Leaf, rank: int | None) -> torch.Tensor:
    """The value of a leaf on the cpu: of a global tensor on that rank only."""
    if isinstance(leaf, Tensor):
        if leaf.is_global and rank is not None:
            there = Placement(leaf.placement.type, [rank])
            leaf = box(leaf, Meta.of(leaf.shape, leaf.dtype, there, (broadcast,)))
        return leaf.shards[0].detach().cpu() if leaf.shards else torch.empty(0)
    return leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else torch.tensor(leaf)


def _named(path_or_buffer: File) -> str:
    return str(path_or_buffer) if _is_path(path_or_buffer) else "into the buffer"


def _is_path(file: object) -> bool:
    return isinstance(file, (str, os.PathLike))


def _write(tree: Json, values: dict[str, torch.Tensor], file: File, format: str) -> None:
    if format == "torch":
        plain = restored(tree, lambda entry: values[entry["name"]])
        with _destination(file) as target:
            torch.save(plain, target)
        return
    kept = {name: as_stored(value).contiguous() for name, value in values.items()}
    sums = {name: zlib.crc32(bytes_of(value)) for name, value in kept.items()}
    text = to_text({"tree": tree, "crc32": sums})
    metadata = {"format": "pt", _DESCRIPTION: text, _CHECKSUM: str(zlib.crc32(text.encode()))}
    forms = {name: (value.dtype, tuple(value.shape)) for name, value in kept.items()}
    header, head = make_header(forms, metadata)
    with _destination(file) as target:
        target.write(head)
        for name in header.entries:
            target.write(bytes_of(kept[name]))


@contextmanager
def _destination(file: File) -> Iterator[BinaryIO]:
    """A buffer as it is; a path as a new file, which takes its name when it is whole."""
    if not isinstance(file, (str, os.PathLike)):
        yield file
        return
    with replacing(Path(_in_folder(file))) as target:
        yield target


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when the block ends without an error."""
    number, partial = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as target:
            yield target
            target.flush()
            os.fsync(target.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(partial, 0o666 & ~mask)  # mkstemp made it for its user alone
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


# Loading.


def load(
    path: File | None = None,
    global_src_rank: int | Where = None,
    map_location: Where = None,
    *,
    support_pytorch_format: bool = True,
    weights_only: bool = True,
    f: File | None = None,
    pickle_module: object = None,
    mmap: bool | None = None,
) -> Any:
    """What `save` wrote, or a file of `torch.save`, or the tensors of a safetensors file.

    A folder in Hugging Face's sharded format gives its tensors by name. Tensors are local, on the
    cpu or the device `map_location`. With `global_src_rank` every process calls this, that rank
    alone reads, and tensors become global: broadcast over all ranks, or over the placement
    `map_location`. As in torch, `map_location` may be the second argument.

    Files hold tensors of the cpu: a dict or function as `map_location` says, as in torch, where
    these go. No pickle is executed: torch's files are read with torch's `weights_only=True`. Raises
    CheckpointError, on every process, for a file that is missing, damaged or of another format, and
    OnefoldValueError for `weights_only=False` and a file of torch. `f` is torch's name of `path`;
    `pickle_module` and `mmap` have no effect.
    """
    path = _file_of("load", path, f)
    if global_src_rank is not None and type(global_src_rank) is not int and map_location is None:
        global_src_rank, map_location = None, global_src_rank
    if not weights_only and _is_torch(_start(path)):
        raise OnefoldValueError(
            "load(weights_only=False) would execute the program inside the file. If you trust it, "
            "call torch.load(..., weights_only=False), and flow.from_torch on its tensors"
        )
    if global_src_rank is None and isinstance(map_location, Placement):
        raise OnefoldValueError(
            "load: a placement as map_location needs global_src_rank, the rank that reads"
        )
    if global_src_rank is None:
        device = _device_of(map_location)
        described, values = _read(path, support_pytorch_format)
        return _with_tensors(described, lambda name: _local(values[name], device))
    source, there = cast(int, global_src_rank), _placement_of(map_location)
    return _load_global(path, source, there, support_pytorch_format)


def _placement_of(where: Where) -> Placement:
    if isinstance(where, Placement):
        return where
    return Placement.all(_device_of("cpu" if where is None else where).type)


def _device_of(where: Where) -> torch.device:
    if isinstance(where, Mapping):
        where = where.get("cpu", "cpu")
    elif callable(where):
        found = where(torch.empty(0).untyped_storage(), "cpu")
        where = "cpu" if found is None else found.device
    return read_device(where)  # type: ignore[arg-type]


def _start(file: File) -> bytes:
    """The first bytes of a file, by which its format is known; none if there is no file."""
    if isinstance(file, (str, os.PathLike)):
        if not Path(file).is_file():
            return b""
        with Path(file).open("rb") as opened_file:
            return opened_file.read(2)
    file.seek(0)
    start = file.read(2)
    file.seek(0)
    return start


def _local(value: torch.Tensor, device: torch.device) -> Tensor:
    return from_torch(value.to(device))


def _with_tensors(tree: Json, tensor: Callable[[str], Tensor]) -> Any:
    made: dict[str, Tensor] = {}

    def build(entry: Json) -> object:
        name = entry["name"]
        if name not in made:
            made[name] = tensor(name)
        if entry["$"] == "tensor":
            return made[name].requires_grad_() if entry.get("requires_grad") else made[name]
        value = made[name].to_torch()
        return value if entry["$"] == "torch" else value.cpu().numpy()

    return restored(tree, build)


def _load_global(path: File, source: int, placement: Placement, torch_too: bool) -> Any:
    here = world()
    if not (type(source) is int and 0 <= source < here.size):
        raise OnefoldValueError(
            f"load: global_src_rank must be a rank, 0 to {here.size - 1}, but got {source!r}"
        )
    answer: tuple[str, Json, Json] = ("", None, None)
    values: dict[str, torch.Tensor] = {}
    if not here.launched or here.rank == source:
        try:
            tree, values = _read(path, torch_too)
            forms = {name: (str(x.dtype)[6:], list(x.shape)) for name, x in values.items()}
            answer = ("", tree, forms)
        except OnefoldError as error:
            answer = (str(error), None, None)
    if here.launched:
        answer = gather_objects(answer, tuple(range(here.size)))[source]
    problem, tree, forms = answer
    if problem:
        raise CheckpointError(problem)

    def tensor(name: str) -> Tensor:
        dtype, shape = forms[name]
        first = Placement(placement.type, [source])
        meta = Meta.of(shape, read_dtype(dtype), first, (broadcast,))
        shards = (values[name].to(first.device(source)),) if first.owned else ()
        target = Meta.of(shape, meta.dtype, placement, (broadcast,) * placement.ndim)
        return box(from_shards(shards, meta), target)

    with no_grad():
        return _with_tensors(tree, tensor)


def _read(path: File, torch_too: bool) -> tuple[Json, dict[str, torch.Tensor]]:
    """The tree of a file, and its tensors on the cpu."""
    if isinstance(path, (str, os.PathLike)):
        if not Path(path).exists():
            raise MissingFileError(f"load: there is no file {os.fspath(path)!r}")
        found = Path(_in_folder(path))
        if not found.exists():
            raise CheckpointError(
                f"load: {os.fspath(path)!r} is a folder without a file of flow.save; "
                "checkpoint.load reads those of checkpoint.save, checkpoint.load_weights those of "
                "Hugging Face"
            )
        with opened(found) as file:
            magic = os.read(file, 2)
            if not _is_torch(magic):
                return _from_safetensors(file, found)
        return _from_torch(os.fspath(found), torch_too)
    start = 0
    path.seek(start)
    data = path.read()
    path.seek(start)
    if _is_torch(data[:2]):
        return _from_torch(BytesIO(data), torch_too)
    with tempfile.TemporaryFile() as copy:
        copy.write(data)
        copy.flush()
        return _from_safetensors(copy.fileno(), Path("the buffer"))


def _is_torch(magic: bytes) -> bool:
    return magic in (b"PK", b"\x80\x02")  # a zip file, or a bare pickle


def _from_torch(file: Any, allowed: bool) -> tuple[Json, dict[str, torch.Tensor]]:
    if not allowed:
        raise CheckpointError("load: this is a file of torch; pass support_pytorch_format=True")
    try:
        with torch.serialization.safe_globals([Namespace]):
            content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            "load: the file of torch is damaged, or holds more than tensors, numbers, strings and "
            f"containers of them, which would execute a program: {error}"
        ) from error
    except (OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise CheckpointError(f"load: the file of torch is damaged: {error}") from error
    described = Description(content)
    for entry in entries(described.tree):
        entry["$"] = "tensor"
    return described.tree, {name: torch.as_tensor(x) for name, x in described.tensors.items()}


def _from_safetensors(file: int, path: Path) -> tuple[Json, dict[str, torch.Tensor]]:
    header = read_header(file, path)
    values = {name: _whole(file, header, name, path) for name in header.entries}
    text = header.metadata.get(_DESCRIPTION)
    if text is None and _CHECKSUM not in header.metadata:
        return {name: {"$": "tensor", "name": name} for name in values}, values
    if text is None or header.metadata.get(_CHECKSUM) != str(zlib.crc32(text.encode())):
        raise CheckpointError(f"{path} is damaged: the checksum of its description is wrong")
    described = json.loads(text)
    for name, value in values.items():
        if described["crc32"].get(name) != zlib.crc32(bytes_of(value)):
            raise CheckpointError(f"{path} is damaged: the checksum of {name!r} is wrong")
    tree = described["tree"]
    for entry in entries(tree):
        if entry["name"] not in values:
            raise CheckpointError(f"{path} is damaged: it has no tensor {entry['name']!r}")
        if "dtype" in entry:
            name = entry["name"]
            values[name] = from_stored(values[name], read_dtype(entry["dtype"]))
    return tree, values


def _whole(file: int, header: Header, name: str, path: Path) -> torch.Tensor:
    shape = header.entries[name].shape
    return read_box(file, header, name, ((0,) * len(shape), shape), path)
