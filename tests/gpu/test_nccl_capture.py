"""A collective of NCCL in a CUDA graph, on one GPU: the communicator has one rank."""

import json
import os
import subprocess
import sys

import pytest
from device_checks import DEVICE
from source_tree import REPO

pytestmark = pytest.mark.gpu

FIRST = "the first call runs without CUDA graphs"
WARM = "the kernels were compiled and loaded by this call, for the capture by the next"


def test_an_all_reduce_is_captured(tmp_path):
    script = REPO / "tests" / "nccl_step.py"
    ranks = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    env = {**os.environ, **ranks, "ONEFOLD_STORE": str(tmp_path / "store"), "ONEFOLD_TIMEOUT": "60"}
    done = subprocess.run(
        [sys.executable, str(script), DEVICE],
        capture_output=True, text=True, timeout=240, check=False, env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["same"] == [True] * 6
    assert found["reasons"] == [FIRST, WARM, "", "", "", ""]
    assert found["plan"].endswith("with 1 all_reduce")
    assert found["ended"] and found["gone"]
