"""The command `python -m onefold.kernels.tune`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from ...errors import OnefoldError, OnefoldRuntimeError, OnefoldValueError
from ..gpu.launch import configs
from ..gpu.launch.registry import all_tuned
from . import gpu_timer
from .config_search import Timer, search


def tune(kernels: Sequence[configs.Tuned], arch: str, path: Path, timer: Timer) -> None:
    """Search every dtype and shape class, and write the table after each.

    An entry is kept only if it is better than the rule. So the table stays short, and old entries
    do not hide an improved rule.
    """
    table = dict(configs.read(path))
    for tuned in kernels:
        for dtype in tuned.dtypes:
            for shape_class in tuned.shapes:
                name = configs.key(tuned.kernel, tuned.name(dtype), shape_class, arch)
                found = search(tuned, dtype, shape_class, timer)
                table.pop(name, None)
                if found.seconds < found.rule_seconds:
                    table[name] = dict(found.config)
                configs.write(path, table)
                gain = found.rule_seconds / found.seconds
                text = ", ".join(f"{key} {value}" for key, value in found.config.items())
                print(f"{name}: {found.seconds * 1e6:.1f} us, {gain:.2f} x the rule: {text}")
                for config, why in found.tried:
                    if isinstance(why, str):
                        print(f"  does not run: {dict(config)}: {why}")


def main(arguments: list[str] | None = None) -> int:
    """Tune the named kernels, or all. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m onefold.kernels.tune", description=__doc__)
    parser.add_argument("kernels", nargs="*", help="those to tune; all where none is named")
    names = parser.parse_args(arguments).kernels
    if not torch.cuda.is_available():
        raise OnefoldRuntimeError(
            "kernels are tuned on a GPU, and torch.cuda.is_available() is False. On a machine with "
            "a GPU, the same command rewrites kernels/gpu/launch/configs.json; commit what changed."
        )
    known = all_tuned()
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise OnefoldValueError(
            f"no kernel to tune is called {', '.join(unknown)}; there are {', '.join(known)}"
        )
    chosen = [known[name] for name in names or known]
    tune(chosen, configs.architecture(), configs.PATH, gpu_timer.seconds)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OnefoldError as error:
        sys.exit(f"error: {error}")
