"""Triton's cache as a folder that is filled on one machine and used on another.

Triton finds a compiled form by the hash of a key, which begins with a hash of Triton's own files,
and it keeps absolute paths. Both differ between machines, though the compiler is the same. So each
form is kept with the rest of its key, and installed under the key and paths of the machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton._C.libtriton import get_cache_invalidating_env_vars
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel, make_backend
from triton.runtime.cache import get_cache_key, get_cache_manager, triton_key

from ...errors import OnefoldValueError

_KEY = "onefold_key.json"


def compile_and_keep(source: ASTSource, target: GPUTarget, options: Mapping[str, Any]) -> bool:
    """Compile a form into Triton's cache, with its key; whether it was not there already."""
    found: list[bool] = []

    def listen(*, cache_hit: bool, **more: object) -> None:
        found.append(cache_hit)

    with knobs.compilation.scope():
        knobs.compilation.listener = listen
        compiled: CompiledKernel = triton.compile(source, target=target, options=dict(options))
    kept = get_cache_manager(compiled.hash)
    backend = make_backend(target)
    parsed = backend.parse_options(dict(options, **source.parse_options()))
    key = get_cache_key(source, backend, parsed, get_cache_invalidating_env_vars())
    assert _hash(key) == compiled.hash, "Triton makes its keys in another way"
    row = {"triton": triton.__version__, "ptxas": backend.hash(), "rest": key[len(triton_key()) :]}
    kept.put(json.dumps(row), _KEY, binary=False)
    for text in Path(kept.get_file(_KEY) or "").parent.glob("*.source"):
        text.unlink()  # no launch reads the IR
    return not found[-1]


def install(folder: Path) -> int:
    """Copy the forms of a folder into this machine's cache, and return how many they are.

    Raises OnefoldValueError if the folder has no forms, or those of another Triton.
    """
    keys = sorted(folder.glob(f"*/{_KEY}"))
    if not keys:
        raise OnefoldValueError(
            f"{folder} has no compiled forms; make some: "
            "python -m onefold.kernels.aot --cache FOLDER"
        )
    for path in keys:
        row = json.loads(path.read_text())
        if row["triton"] != triton.__version__:
            raise OnefoldValueError(
                f"{folder} has forms of Triton {row['triton']}, and this is {triton.__version__}; "
                "fill a folder with the version of the machine that has the GPU"
            )
        _install_form(path.parent, _hash(triton_key() + row["rest"]))
    return len(keys)


def _install_form(folder: Path, key: str) -> None:
    kept = get_cache_manager(key)
    groups = [path for path in folder.iterdir() if path.name.startswith("__grp__")]
    for group in groups:
        names = json.loads(group.read_text())["child_paths"]
        there = [name for name in names if (folder / name).exists()]
        paths = {name: kept.put((folder / name).read_bytes(), name) for name in there}
        kept.put_group(group.name.removeprefix("__grp__"), paths)


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
