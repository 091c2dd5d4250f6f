"""Generated kernels, compiled: they read and write 16 bytes at once and spill nothing."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
from onefold.kernels.aot.compile_kernel import facts_of
from onefold.kernels.gpu.pointwise.pointwise_kernels import CASES

for case in CASES:
    facts = facts_of(case, "sm_90")
    print(case, facts.load, facts.store, facts.spills, sep="; ")
    assert (facts.load, facts.spills) == (16, 0), case
    assert facts.store == 16 or "square_mean" in str(case) or "(*fp32,*i1" in str(case), case
"""


def test_every_form_is_read_16_bytes_at_a_time():
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pointwise_add(*bf16,*bf16,*bf16" in done.stdout
    assert "pointwise_mul(*bf16,*bf16,*bf16,i32,i32,i32,i32" in done.stdout
