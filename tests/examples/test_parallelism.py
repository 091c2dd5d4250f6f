"""The strategy programs give the same on virtual and launched ranks."""

import os
import subprocess
import sys

from source_tree import REPO

PROGRAM = str(REPO / "examples" / "parallelism.py")


def lines(command):
    environment = {key: value for key, value in os.environ.items() if key != "ONEFOLD_DEVICE"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=180, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.strip()]


def test_programs_print_the_same_launched_and_virtual():
    virtual = lines([sys.executable, PROGRAM])
    launcher = [sys.executable, "-m", "onefold.distributed.launch", "--nproc_per_node", "4"]
    launched = lines([*launcher, PROGRAM])
    assert len(virtual) == 8
    assert virtual[0].split() == "data: (4, 8) as (onefold.sbp.split(dim=0),)".split()
    assert launched == virtual


def test_an_unknown_program_is_refused():
    done = subprocess.run(
        [sys.executable, PROGRAM, "magic"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert (
        "unknown programs ['magic']; choose from data, model, pipeline, mixed, graph" in done.stderr
    )
