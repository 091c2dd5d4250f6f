"""Tile configurations of kernels: from a committed table, or else by the kernel's rule.

`configs.json` holds the configurations that `python -m onefold.kernels.tune` found fastest on a
kind of GPU. Nothing is timed while a program runs. So every rank makes the same choice in every
run, and sums have the same order. On another kind of GPU, or with another table, tiles may differ,
and so may the last bits of sums.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from ....errors import OnefoldValueError
from .aot_cases import Case

PATH = Path(__file__).with_name("configs.json")
Config = Mapping[str, int]


@dataclass(frozen=True)
class Tuned:
    """What the tuner needs to know about a kernel. A family lists its own as `TUNED`.

    `name(dtype)` is the name of the dtype in the table. `allowed(dtype, sizes)` returns the
    configurations to try, with that of the rule first. `call(config, dtype, sizes)` creates inputs,
    always the same random numbers, and returns a function that runs the kernel on them and returns
    the result. `cases(name, sizes, config)` are the forms to compile ahead of time for an entry of
    the table.
    """

    kernel: str
    dtypes: tuple[torch.dtype, ...]
    shapes: Mapping[str, tuple[int, ...]]  # sizes that stand for a shape class
    allowed: Callable[[torch.dtype, tuple[int, ...]], Sequence[Config]]
    call: Callable[[Config, torch.dtype, tuple[int, ...]], Callable[[], torch.Tensor]]
    cases: Callable[[str, tuple[int, ...], Config], Sequence[Case]]
    name: Callable[[torch.dtype], str] = str


def config(
    kernel: str, dtype: torch.dtype | str, shape_class: str, rule: Config, arch: str = ""
) -> Config:
    """The configuration of a kernel on this GPU: from the table, or else from the rule.

    A kernel that treats several dtypes alike passes their common name. Raises OnefoldValueError if
    the table has other parameters than the rule.

    >>> import torch
    >>> from onefold.kernels.gpu.launch.configs import config
    >>> config("no such kernel", torch.float32, "large", {"BLOCK": 64, "warps": 4})
    {'BLOCK': 64, 'warps': 4}
    """
    found = _table().get(key(kernel, dtype, shape_class, arch or architecture()))
    if found is None:
        return rule
    if set(found) != set(rule):
        raise OnefoldValueError(
            f"{PATH.name} gives {kernel} the parameters {', '.join(found)}; its rule has "
            f"{', '.join(rule)}. Tune it again: python -m onefold.kernels.tune {kernel}"
        )
    return found


def random_inputs(dtype: torch.dtype, *shapes: Sequence[int]) -> list[torch.Tensor]:
    """The same random numbers at every call, for the tuner; on the GPU if there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    draws = torch.Generator(device).manual_seed(0)
    return [torch.randn(shape, dtype=dtype, device=device, generator=draws) for shape in shapes]


def key(kernel: str, dtype: torch.dtype | str, shape_class: str, arch: str) -> str:
    """The name of one entry of the table."""
    return f"{kernel} {str(dtype).removeprefix('torch.')} {shape_class} {arch}"


@cache
def architecture() -> str:
    """The kind of this machine's first GPU, as compilers name it; "" without one.

    All GPUs of a job are taken to be of one kind.
    """
    if not torch.cuda.is_available():
        return ""
    if torch.version.hip is not None:
        return str(torch.cuda.get_device_properties(0).gcnArchName).split(":")[0]
    return "sm_{}{}".format(*torch.cuda.get_device_capability(0))


def read(path: Path) -> dict[str, dict[str, int]]:
    """The entries of a table. Raises OnefoldValueError if the file is not a table."""
    try:
        table = json.loads(path.read_text())
        return {str(name): {k: int(v) for k, v in entry.items()} for name, entry in table.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise OnefoldValueError(f"{path} is not a table of configurations: {error}") from error


def write(path: Path, table: Mapping[str, Config]) -> None:
    """Write a table: one line for each entry, sorted."""
    lines = [f"{json.dumps(name)}: {json.dumps(dict(table[name]))}" for name in sorted(table)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n" if lines else "{}\n")


@cache
def _table() -> dict[str, dict[str, int]]:
    return read(PATH)
