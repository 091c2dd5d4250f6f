"""The programs of docs/parallel.md in two processes, those of torch too: all print one loss."""

import contextlib
import io
import re
import warnings
from unittest import mock

import torch
from doc_blocks import blocks
from launched import run_ranks
from source_tree import REPO

PAGE = (REPO / "docs/parallel.md").read_text()
LOSS = r"^\d\.\d{4}$"
FOUR_RANKS = "[[0, 1], [2, 3]]"


def _printed():
    """What each block prints on this rank."""
    space: dict[str, object] = {"__name__": "__main__"}
    found = []
    for block in blocks(PAGE):
        if block.language != "python" or FOUR_RANKS in block.body:
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * (block.line - 1) + block.body, "docs/parallel.md", "exec"), space)
        found.append((block.options, out.getvalue()))
    return found


def _rank():
    # The processes are connected already, as far as torch is concerned.
    with mock.patch.object(torch.distributed, "init_process_group"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
        warnings.filterwarnings("ignore", category=UserWarning, module="torch")
        return _printed()


def test_all_programs_print_one_loss():
    for printed in run_ranks(2, _rank, timeout=120):
        losses = [
            (options, loss)
            for options, text in printed
            for loss in re.findall(LOSS, text, re.MULTILINE)
        ]
        assert len({loss for _, loss in losses}) == 1, losses
        assert sum(options == "skip: needs two processes" for options, _ in losses) == 5
        assert len(losses) == 10
    shown = re.findall(LOSS, PAGE, re.MULTILINE)
    assert set(shown) == {losses[0][1]} and len(shown) == 6
