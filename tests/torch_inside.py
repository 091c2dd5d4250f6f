"""What Triton kernels do in torch inside, on real data, and why: `INSIDE` is all of it."""

import os
import sys
from collections import Counter, defaultdict
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from onefold.engine import dispatch_plan
from onefold.kernels import gpu, interpreter, select
from onefold.testing.gpu_driver.torch_work import is_work
from onefold.testing.sample_checks import local_results

MOST = 3  # samples of one op: more show nothing new
FOLDER = Path(gpu.__file__).parent
INTERPRETER = Path(interpreter.__file__).parent
# Where the graph of a function is asked for, on tensors that stand for others.
ASKED = {"expression_of", "why_not", "stand_in", "_plan"}
# Where a bound is rounded to a dtype, on the host: what that gives is cached.
ASKED |= {"_half_open", "_round_down"}
# Copies that make a tensor dense are torch's everywhere.
ALLOWED = {"clone"}
COMPLEX = "complex"  # stands for all operators that take or give complex numbers
# Module of kernels/gpu -> operators of torch -> why Triton kernels there use them.
_CHECKED = "indices and targets are checked on the CPU alone, where looking is cheap"
_PAIRS = "complex numbers of 128 bits, and all but sums, products and conjugates of each element"
_WIDE = "heads of more than 256 features, see the comment there; the CPU has a kernel for them"
INSIDE: dict[str, dict[str, str]] = {
    "attention_kernels": {
        "_scaled_dot_product_flash_attention_for_cpu": _WIDE,
        "_scaled_dot_product_flash_attention_for_cpu_backward": _WIDE,
    },
    "gemm": {COMPLEX: _PAIRS},
    "matmul_kernels": {COMPLEX: _PAIRS},
    "reduce_kernels": {COMPLEX: _PAIRS},
    "gather_scatter_kernels": {"aminmax _local_scalar_dense": _CHECKED},
    "cross_entropy_kernels": {"ne lt ge bitwise_or bitwise_and any _local_scalar_dense": _CHECKED},
    "scatter_gather": {"aminmax _local_scalar_dense": _CHECKED},
    "pointwise_kernels": {
        COMPLEX: _PAIRS,
        "_to_copy": "8-bit floats to and from 64 bits, as the samples of quantize_fp8 cast",
        "digamma polygamma": "iterations that Triton's libraries have not",
    },
}


class Inside(TorchDispatchMode):
    """While it is active, operators of torch that a module of kernels/gpu calls are noted."""

    def __init__(self):
        super().__init__()
        self.seen = defaultdict(Counter)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function._schema.name.removeprefix("aten::")
        if is_work(function) and name not in ALLOWED and has_values(result):
            module = caller()
            if module:
                self.seen[module][COMPLEX if is_complex(args, result) else name] += 1
        return result


def is_complex(args, result):
    """Whether a call has complex numbers as its arguments or its result."""
    return any(isinstance(x, torch.Tensor) and x.is_complex() for x in tree_leaves((args, result)))


def has_values(result):
    """Whether some memory was filled: not that of tensors without elements, or without memory."""
    leaves = tree_leaves(result)
    return any(not isinstance(x, torch.Tensor) or (x.numel() and not x.is_meta) for x in leaves)


def caller():
    """The module of kernels/gpu that called an operator; "" where none did, or for no values."""
    frame, module = sys._getframe(2), ""
    while frame:
        here = module_of(frame.f_code.co_filename)
        if here == "triton" and not module:
            return ""
        if frame.f_code.co_name in ASKED and in_kernels(frame.f_code.co_filename):
            return ""
        module, frame = module or here, frame.f_back
    return module


@cache
def in_kernels(file):
    """Whether a file is below kernels/, of which kernels/gpu is a part."""
    return FOLDER.parent in Path(file).parents


@cache
def module_of(file):
    """The module of kernels/gpu that a file is, "triton" where it is Triton's, else ""."""
    path = Path(file)
    if FOLDER in path.parents:
        return path.stem
    return "triton" if "triton" in path.parts or path.parent == INTERPRETER else ""


@contextmanager
def recording():
    """What Triton kernels do inside while it is open, where nothing is done from plans."""
    dispatch_plan.clear_plans()
    triton = mock.patch.dict(os.environ, {"ONEFOLD_KERNELS": "triton"})
    direct = mock.patch.object(select, "_replayed_kernel", select.triton_kernel)
    with triton, direct, Inside() as inside:
        yield inside.seen
    dispatch_plan.clear_plans()


def some(samples):
    """The first samples of each op."""
    count = Counter()
    for sample in samples:
        count[sample.name] += 1
        if count[sample.name] <= MOST:
            yield sample


def observe(samples):
    """What Triton kernels do inside in these samples."""
    with recording() as seen:
        for sample in samples:
            local_results(sample, second=False)
    return seen


def differences(seen, listed):
    """What Triton kernels were seen to use and is not listed, and what is listed and was not
    seen.
    """
    texts = []
    for module in sorted({*seen, *listed}):
        known = set(" ".join(listed.get(module, {})).split())
        found = set(seen.get(module, {}))
        texts += [
            f"{module} uses torch's {name}: give it a Triton path, or a reason in INSIDE"
            for name in sorted(found - known)
        ]
        texts += [f"{module} no longer uses {name}: remove it" for name in sorted(known - found)]
    return texts
