"""Pages with programs of other systems next to ours: both sides print the same numbers."""

import contextlib
import io
import os
import re
import socket
import subprocess
import sys
import warnings
from itertools import dropwhile
from pathlib import Path
from unittest import mock

import pytest
import torch
from doc_blocks import blocks, examples
from launched import run_ranks
from source_tree import REPO

# How many blocks of each need two processes.
PAGES = {"docs/from_torch.md": 2, "docs/from_fsdp.md": 12}
NUMBER = re.compile(r"-?\b\d+\.\d{4}\b")
TWO_PROCESSES = "skip: needs two processes"
FOUR_RANKS = "[[0, 1], [2, 3]]"


def page_examples(page):
    """The blocks that two processes can run, each with the output shown below it."""
    found = examples((REPO / page).read_text())
    return [(block, shown or "") for block, shown in found if FOUR_RANKS not in block.body]


def printed(page, folder):
    """The numbers that each block prints on this rank."""
    own = folder / os.environ["RANK"]
    own.mkdir()
    os.chdir(own)
    space: dict[str, object] = {"__name__": "__main__"}
    found = []
    for block, _ in page_examples(page):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * (block.line - 1) + block.body, page, "exec"), space)
        found.append(NUMBER.findall(out.getvalue()))
    return found


def rank_program(page, folder):
    # The processes are connected already, as far as torch is concerned.
    with (
        mock.patch.object(torch.distributed, "init_process_group"),
        mock.patch.object(torch.distributed, "destroy_process_group"),
        warnings.catch_warnings(),
    ):
        for category in (DeprecationWarning, UserWarning, FutureWarning):
            warnings.filterwarnings("ignore", category=category, module="torch")
        return printed(page, folder)


@pytest.mark.parametrize("page", PAGES)
def test_all_programs_print_the_numbers_shown(page, tmp_path):
    ranks = run_ranks(2, rank_program, page, tmp_path, timeout=120)
    found = page_examples(page)
    compared = 0
    for at, (block, shown) in enumerate(found):
        numbers = {number for rank in ranks for number in rank[at]}
        if block.options == TWO_PROCESSES:
            # Programs for several processes stand above the one whose output is shown.
            shown = next(
                dropwhile(lambda text: not NUMBER.search(text), (s for _, s in found[at:]))
            )
            assert numbers, f"{page}:{block.line} prints no number"
            compared += 1
        elif not shown:
            continue
        assert numbers == set(NUMBER.findall(shown)), f"{page}:{block.line}"
    assert compared == PAGES[page]


@pytest.mark.usefixtures("world")
def test_programs_of_oneflow_run_when_their_import_changes():
    space: dict[str, object] = {"__name__": "__main__"}
    found = list(examples((REPO / "docs/from_oneflow.md").read_text()))
    compared = 0
    for at, (block, _) in enumerate(found):
        if block.options != "skip: a program of OneFlow":
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(block.body.replace("oneflow", "onefold"), space)
        shown = next(text for _, text in found[at:] if text)
        assert shown.startswith(out.getvalue()), f"docs/from_oneflow.md:{block.line}"
        compared += 1
    assert compared == 3


SRUN = """#!/bin/bash
# Runs a command as two tasks, each on a machine of its own.
for task in 0 1; do
    SLURM_PROCID=$task SLURM_NODEID=$task SLURM_LOCALID=0 SLURM_NTASKS=2 SLURM_NNODES=2 \\
        SLURM_NTASKS_PER_NODE=1 "$@" &
done
wait
"""
# In one write, so that the tasks' lines do not mix.
TRAIN = """
import sys

import onefold as flow

p = flow.placement("cpu", [0, 1])
x = flow.arange(6, placement=p, sbp=flow.sbp.split(0)).sum().item()
rank, machines = flow.env.get_rank(), flow.env.get_node_size()
sys.stdout.write(f"rank {rank} of {machines} machines has {x}\\n")
"""


def slurm_scripts():
    page = (REPO / "docs/from_torch.md").read_text()
    found = [block.body for block in blocks(page) if "srun" in block.body]
    assert ["torchrun" in script for script in found] == [True, False, False]
    return found[1:]


@pytest.mark.parametrize("script", slurm_scripts(), ids=["launcher", "srun"])
def test_slurm_scripts_start_every_rank(script, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = script.replace("29500", str(port)).replace("--nproc_per_node 8", "--nproc_per_node 1")
    files = {"srun": SRUN, "scontrol": "#!/bin/bash\necho 127.0.0.1\n", "job.sh": script}
    for name, text in (files | {"train.py": TRAIN}).items():
        Path(tmp_path, name).write_text(text)
        Path(tmp_path, name).chmod(0o755)
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "job.sh"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "ONEFOLD_TIMEOUT": "40", "ONEFOLD_DEVICE": "cpu"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    lines = sorted(done.stdout.splitlines())
    assert lines == [f"rank {rank} of 2 machines has 15" for rank in (0, 1)], done.stderr
