"""Coverage: which functions Triton computes, and which ops leave work on cuda to torch, and why.

A test runs all ops and compares. Operators of torch that compute or move values are work; views and
other changes of metadata are none.
"""

from __future__ import annotations

from inspect import getmembers, isfunction

from .gpu.launch.registry import modules, reference_of
from .gpu.pointwise.triton_functions import all_names

# Ops whose work torch does also on cuda, and why.
_IN_PARTS = "not on cuda: there smaller ops do the work, which have Triton kernels"
REASONS = {
    "batch_norm_with_stats": _IN_PARTS,
    "batch_norm_with_stats_grad": _IN_PARTS,
    "group_norm_with_stats": _IN_PARTS,
    "group_norm_with_stats_grad": _IN_PARTS,
    "gru_gates": _IN_PARTS,
    "gru_gates_grad": _IN_PARTS,
    "lstm_gates": _IN_PARTS,
    "lstm_gates_grad": _IN_PARTS,
    "dropout_by_mask": "not on cuda: there the mask is drawn again",
    "dropout_with_mask": "not on cuda: there the mask is drawn again",
    "cat": "one zero that stands for an absent part; the parts are joined by Triton",
}


def functions() -> dict[str, list[str]]:
    """The functions that Triton computes, by the module of their torch references.

    >>> from onefold.kernels import coverage
    >>> coverage.functions()["gated"]
    ['gated', 'gated_grad']
    """
    found = {}
    for module in modules():
        reference = reference_of(module)
        if reference is not None:
            found[module.__name__.rpartition(".")[2].removesuffix("_kernels")] = [
                name
                for name, function in getmembers(reference, isfunction)
                if function.__module__ == reference.__name__ and name in vars(module)
                if not name.startswith("_")
            ]
    return found | {"pointwise": sorted(all_names())}


def text() -> str:
    """The table to read."""
    lines = [f"{family:16} {', '.join(names)}" for family, names in sorted(functions().items())]
    return "\n".join([*lines, "", *[f"{op}: torch, {why}" for op, why in sorted(REASONS.items())]])
