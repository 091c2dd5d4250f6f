"""Fills a folder with the compiled forms of programs, each run in a process of its own."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ...errors import OnefoldValueError

_ROOT = Path(__file__).parents[2]
_PACKAGE = __name__.partition(".kernels")[0]
STEPS = "benchmarks/whole_steps.py --forms"


def fill(folder: Path, programs: Sequence[str], processes: int) -> int:
    """Compile what programs launch, without a GPU, and return the exit status.

    Raises OnefoldValueError if no program is named and this is not a checkout of the repository.
    """
    if not programs:
        file, *words = shlex.split(STEPS)
        if not (_ROOT / file).exists():
            raise OnefoldValueError(
                "--cache was asked for without programs, and the benchmarks are not installed; "
                'name some, such as: --programs "train.py --steps 2"'
            )
        programs = [shlex.join([str(_ROOT / file), *words])]
    status = 0
    for program in programs:
        command = [sys.executable, "-m", f"{_PACKAGE}.testing.form_cache"]
        command += ["--processes", str(processes), "--cache", str(folder), *shlex.split(program)]
        status = subprocess.run(command, check=False).returncode or status
    return int(bool(status))
