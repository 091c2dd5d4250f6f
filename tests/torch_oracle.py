"""The torch that tests compare with: that of constraints.txt. Others lack some of what it has."""

import re

import pytest
import torch
from source_tree import REPO

NAMED = re.search(r"^torch==(\d+\.\d+)", (REPO / "constraints.txt").read_text(), re.MULTILINE)[1]

IS_NAMED = torch.__version__.startswith(f"{NAMED}.")

needs_this_torch = pytest.mark.skipif(
    not IS_NAMED,
    reason=f"compares with torch {NAMED}, and this is torch {torch.__version__}",
)
