"""The command `python -m onefold.utils.doctor`: checks this machine, and says what to mend."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
import torch.distributed as dist

from ..env import VARIABLES
from ..errors import OnefoldError
from ..graph.hardware.hardware_files import this_machine
from ..kernels.gpu.launch.launcher_version import is_known

_MIN_TORCH = (2, 11)
_SECONDS = 60  # in which two processes meet
_RANKS = """
import onefold as flow
p = flow.placement({device!r}, [0, 1])
x = flow.ones(4, placement=p, sbp=flow.sbp.split(0))
assert x.sum().item() == 4
"""


@dataclass(frozen=True)
class Finding:
    """What was looked at, what was found, and where something is wrong, what to do."""

    what: str
    found: str
    mend: str = ""

    def __str__(self) -> str:
        mark = "!" if self.mend else " "
        text = f"{mark} {self.what:<14} {self.found}"
        return f"{text}\n  {'':<14} -> {self.mend}" if self.mend else text


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def packages() -> Iterator[Finding]:
    """The versions of Python and of what onefold imports."""
    yield Finding("python", f"{platform.python_version()} on {platform.platform()}")
    found = tuple(map(int, torch.__version__.split(".")[:2]))
    least = ".".join(map(str, _MIN_TORCH))
    mend = "" if found >= _MIN_TORCH else f"install torch {least} or newer"
    yield Finding("torch", torch.__version__, mend)
    yield Finding("numpy", _installed("numpy") or "not there")
    triton = _installed("triton")
    if triton is None:
        needed = torch.cuda.is_available()
        yield Finding("triton", "not there", "pip install triton, for the GPU" if needed else "")
    else:
        how = "kernels are started directly" if is_known(triton) else "kernels start more slowly"
        yield Finding("triton", f"{triton}: {how}")


def devices() -> Iterator[Finding]:
    """Processors, GPUs, and what compiles for them."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("processors", f"{count}, {torch.get_num_threads()} threads for torch")
    if not torch.cuda.is_available():
        yield Finding("gpu", 'none: placements on "cuda" need ONEFOLD_DEVICE=cpu')
        return
    for index in range(torch.cuda.device_count()):
        its = torch.cuda.get_device_properties(index)
        size = f"{its.total_memory / 2**30:.1f} GiB"
        yield Finding(f"gpu {index}", f"{its.name}, sm_{its.major}{its.minor}, {size}")
    compiler = next(filter(None, map(shutil.which, ("gcc", "clang", "cc"))), None)
    mend = "" if compiler else "install gcc: Triton compiles its launcher with it"
    yield Finding("C compiler", compiler or "not there", mend)


def settings() -> Iterator[Finding]:
    """The environment variables that are set, and the file of this machine's hardware."""
    for variable in VARIABLES:
        if variable.is_set():
            try:
                variable.read()
            except OnefoldError as error:
                yield Finding(variable.name, "not valid", str(error))
            else:
                yield Finding(variable.name, f"set: {variable.doc}")
    path = this_machine()
    there = str(path) if path.exists() else "not measured; `onefold calibrate` does it"
    yield Finding("hardware file", there)


def communication() -> Iterator[Finding]:
    """Whether two processes on this machine meet, and add numbers up."""
    if not dist.is_available():
        yield Finding("communication", "none", "this torch is built without torch.distributed")
        return
    device = "cuda" if torch.cuda.device_count() > 1 else "cpu"
    backend = "nccl" if device == "cuda" else "gloo"
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "two_ranks.py")
        program.write_text(_RANKS.format(device=device))
        command = [sys.executable, "-m", "onefold.distributed.launch", "--nproc_per_node", "2"]
        try:
            done = subprocess.run(
                [*command, str(program)],
                capture_output=True, text=True, timeout=_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            said = f"two processes did not meet within {_SECONDS} s"
            mend = "see docs/faults.md; GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME names a network"
            yield Finding("communication", said, mend)
            return
    last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
    said = f"two processes over {backend}"
    if done.returncode:
        yield Finding("communication", f"{said} failed", last)
    else:
        yield Finding("communication", f"{said} added up what they have")


CHECKS: Sequence[Callable[[], Iterator[Finding]]] = (packages, devices, settings, communication)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is found; 1 where something is to be mended."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(": ")[1].capitalize())
    parser.parse_args(arguments)
    wrong = 0
    for check in CHECKS:
        for finding in check():
            sys.stdout.write(f"{finding}\n")
            sys.stdout.flush()
            wrong += bool(finding.mend)
    sys.stdout.write(f"{wrong} to mend\n" if wrong else "all is well\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
