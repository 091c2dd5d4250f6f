"""Models from local folders (`flow.hub`): the entry points of a folder's hubconf.py.

No program is downloaded: what torch.hub fetches by a name on GitHub must be a folder here. Weights
are, to the folder in which torch keeps them.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any
from urllib.parse import urlparse

from torch.hub import HASH_REGEX, _get_torch_home, download_url_to_file, get_dir, set_dir
from tqdm import tqdm

from .checkpoint.save_load import Where, load as load_file
from .errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError

__all__ = [
    "HASH_REGEX",
    "_get_torch_home",
    "download_url_to_file",
    "get_dir",
    "help",
    "list",
    "load",
    "load_state_dict_from_url",
    "set_dir",
    "tqdm",
]

_CONF = "hubconf.py"


def list(
    repo_or_dir: str,
    source: str = "local",
    *,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: bool | str | None = None,
    verbose: bool = True,
) -> builtins.list[str]:
    """The names of the entry points: the functions of hubconf.py without a leading underscore.

    The arguments by name are torch's, of downloads: they change nothing.
    """
    with _conf(repo_or_dir, source) as conf:
        found = vars(conf)
    return sorted(name for name in found if callable(found[name]) and not name.startswith("_"))


def help(
    repo_or_dir: str,
    model: str,
    source: str = "local",
    *,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: bool | str | None = None,
) -> str | None:
    """The docstring of an entry point. The arguments by name change nothing."""
    with _conf(repo_or_dir, source) as conf:
        return _entry(conf, model).__doc__


def load(
    repo_or_dir: str,
    model: str,
    *args: Any,
    source: str = "local",
    trust_repo: bool | str | None = None,
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """What the entry point `model` of the folder's hubconf.py returns for these arguments.

    `trust_repo`, `force_reload`, `verbose` and `skip_validation` are torch's, of downloads: they
    change nothing.

    Example: `flow.hub.load("models", "resnet", depth=18)`. Raises OnefoldValueError for other
    sources than "local", OnefoldRuntimeError where the folder, a module that `dependencies` in
    hubconf.py names, or the entry point is missing.
    """
    with _conf(repo_or_dir, source) as conf:
        return _entry(conf, model)(*args, **kwargs)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Where = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> Any:
    """What the file at `url` holds, as `flow.load` reads it.

    It is downloaded to `model_dir`, or the folder `checkpoints` of `get_dir()`, unless it is there.
    With `check_hash` its name ends with the first digits of its hash, as in `net-0123abcd.pth`. No
    pickle is executed. Raises CheckpointError where the file cannot be read.
    """
    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, file_name or os.path.basename(urlparse(url).path))
    if not os.path.exists(path):
        found = HASH_REGEX.search(os.path.basename(path)) if check_hash else None
        download_url_to_file(url, path, found.group(1) if found else None, progress=progress)
    return load_file(path, map_location=map_location)


@contextmanager
def _conf(folder: str, source: str) -> Iterator[ModuleType]:
    """The module hubconf.py of a folder, in a block that imports modules from there."""
    if source != "local":
        raise OnefoldValueError(
            f"hub: source={source!r} would download {folder!r}, but only source='local' is "
            "supported; clone the repository, and pass its folder"
        )
    path = os.path.join(os.fspath(folder), _CONF)
    if not os.path.isfile(path):
        raise OnefoldRuntimeError(
            f"hub: there is no {_CONF} in {folder!r}; the folder must have one, and repositories "
            "are not downloaded: clone the repository, and pass its folder"
        )
    spec = spec_from_file_location("hubconf", path)
    assert spec is not None
    assert spec.loader is not None
    conf = module_from_spec(spec)
    sys.path.insert(0, os.fspath(folder))
    try:
        spec.loader.exec_module(conf)
        missing = [name for name in getattr(conf, "dependencies", ()) if find_spec(name) is None]
        if missing:
            raise OnefoldRuntimeError(f"hub: {path} needs modules that are missing: {missing}")
        yield conf
    finally:
        sys.path.remove(os.fspath(folder))


def _entry(conf: ModuleType, model: str) -> Callable[..., Any]:
    if not isinstance(model, str):
        raise OnefoldTypeError(f"hub: model must be the name of an entry point, but got {model!r}")
    entry: Callable[..., Any] | None = getattr(conf, model, None)
    if not callable(entry):
        raise OnefoldRuntimeError(f"hub: cannot find callable {model!r} in {conf.__file__}")
    return entry
