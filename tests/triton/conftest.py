"""Triton kernels in Triton's interpreter. It must be chosen before Triton is imported, so these
tests run in a process of their own: `make test` starts it.
"""

import os

import pytest
import torch

if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def _same_numbers_each_time():
    torch.manual_seed(0)
