"""Runs samples, training steps and optimizers on the driver without a GPU, and lists problems.

    python tests/driver_runs.py                       # what CI runs
    python tests/driver_runs.py --match "whole step"  # of these, GPT-2 124M and a Llama of 1.2B
    python tests/driver_runs.py --all                 # every sample in three dtypes, as binaries

Forms are compiled in parallel, into Triton's cache. Ends with 1 where there is a problem.
"""

import argparse
import gc
import os
import sys
import time
import warnings
from collections import Counter
from functools import cache
from unittest import mock

import driver_families
import driver_large
import driver_models
import driver_whole_steps
import samples
import torch
import torch_inside
from driver_models import OPTIMIZERS, STEPS

from onefold import FallbackWarning
from onefold.distributed.world import virtual_world
from onefold.engine.placement import Placement
from onefold.errors import OnefoldRuntimeError
from onefold.kernels.aot import budget, workers
from onefold.kernels.aot.compile_kernel import COMPILER
from onefold.kernels.gpu.launch import trace_cache
from onefold.testing.gpu_driver import GpuDriver
from onefold.testing.sample_checks import global_results, local_results, spread

NEVER = sys.maxsize  # calls before a trace is made
NAMED = {"float64": None, "float32": torch.float32, "bfloat16": torch.bfloat16}
REPLAYED = "copy_"  # what makes a tensor dense, in the code that replays a trace
NOTE = "note: "  # is printed, and does not fail
ALL = 10**6  # samples of each op
CHUNK = 24  # samples of one task
CALLS = 3  # the second traces, the third replays
LIMIT = 600.0  # seconds for one task
# torch computes these rows, and has them in no narrow dtype on the CPU.
TORCH_HAS_NONE = (
    "not implemented for",
    "Low precision dtypes not supported",
    "only supported for half",
)
_ON_HOST = "on the host: tables of addresses and numbers, of which copies go to the device"
_NUMBERS = "single numbers on the device, so that nothing waits for them"
_READ = "numbers are read where they lie on the CPU; on a GPU they stay there"
_OWN = "in a tensor's own memory, in one call that reads and writes no more than a kernel of ours"
# What the steps may leave to torch: by module and operators ("*" for all), and why.
IN_STEPS = {
    "engine.autograd": ("add_", _OWN),
    "engine.ops.arithmetic": ("add_", _OWN),
    "engine.ops.creation": ("full zeros", "memory of one number"),
    "engine.ops.ranges": ("arange mul add _to_copy", "ranges"),
    "graph.stages.stage_executor": ("add", "sums over micro-batches of biases, norms, embeddings"),
    "kernels.gpu.gather.gather_scatter_kernels": ("add_", "gradients of rows, to those there are"),
    "kernels.gpu.update.pointer_table": ("*", _ON_HOST),
    "kernels.optim_ref": ("_foreach_mul", "gradients that are clipped, times the factor"),
    "kernels.staging": ("_to_copy", _NUMBERS),
    "optim.clip": ("pow sum add reciprocal mul clamp _to_copy", _NUMBERS),
    "optim.counted_on_host": ("_local_scalar_dense", _ON_HOST),
    "optim.device_scalar": ("_local_scalar_dense", _READ),
    "optim.lamb": ("gt bitwise_and mul div where scalar_tensor stack", _NUMBERS),
    "optim.lars": ("gt bitwise_and add mul div where scalar_tensor stack", _NUMBERS),
    "optim.optimizer": ("zeros_like", "memory of the updates, at the first step of LAMB"),
    "optim.tensor_norms": ("sqrt", _NUMBERS),
    "engine.commit": ("add_ copy_ mul_", "torch's lists of updates: Adafactor and Muon"),
    "optim.adafactor": ("*", "matrices are updated by torch's operators, one after the other"),
    "optim.muon": ("*", "the products are torch's, on matrices of any size"),
    "optim.lbfgs": ("*", "vectors of all parameters, and decisions on the host"),
    "engine.values": ("_local_scalar_dense", "what LBFGS asks of a loss"),
}


@cache
def all_samples():
    return samples.load()


def run_samples(dtype, depth, first, last, most, ranks):
    """The problems of samples by their numbers among `most` of each op, on one rank or two."""
    named = NAMED[dtype]

    def change(value):
        return value if named is None or value.dtype != torch.float64 else value.to(named)

    texts = []
    with warnings.catch_warnings(), virtual_world(), GpuDriver(depth) as gpu, traced_after(0):
        warnings.simplefilter("ignore", FallbackWarning)
        for sample in chosen(most)[first:last]:
            known = len(gpu.problems)
            try:
                for layout in layouts(sample) if ranks == "two ranks" else [None]:
                    for _ in range(2):
                        results(sample, layout, change)
            except OnefoldRuntimeError as error:
                if named is None or not any(text in str(error) for text in TORCH_HAS_NONE):
                    texts.append(f"{sample!r} in {dtype}: {error}")
            texts += [f"{sample!r} in {dtype}: {text}" for text in wrong(gpu.problems[known:])]
    return texts, gpu.launches.total(), len(gpu.forms)


def traced_after(calls):
    """A context in which functions around kernels are traced after this many calls."""
    return mock.patch.object(trace_cache, "TRACED_AFTER", calls)


def layouts(sample):
    """Some combinations of layouts of the tensors of a sample on two ranks."""
    return spread(sample.tensors(), Placement("cpu", [0, 1]), 2, sample.seed)


def results(sample, layout, change):
    """Run a sample forward and backward."""
    if layout is None:
        return local_results(sample, second=False, change=change)
    return global_results(sample, Placement("cpu", [0, 1]), layout, change=change)


def wrong(problems):
    """The problems as text."""
    serialized = set()
    for problem in problems:
        note = problem.text.startswith("spills") and not is_budgeted()
        if problem.text.startswith("wgmma"):
            # Small tiles with an epilogue are. The budget fails where another form is.
            serialized.add(f"{NOTE}{problem.text} in {problem.form.partition('(')[0]}")
        else:
            yield f"{NOTE if note else ''}{problem}"
    yield from sorted(serialized)


@cache
def is_budgeted():
    """Whether tiles were chosen for this version of Triton: with others some forms may spill."""
    return budget.read(budget.PATH)[1] == COMPILER


def chosen(most):
    """The first samples of each op."""
    met = Counter()
    return [x for x in all_samples() if met.update([x.name]) or met[x.name] <= most]


def run_step(model, which):
    """The problems of a training step of a model in a mode, or of an optimizer by its number."""
    if not model:
        return run(driver_models.optimizer_step, *OPTIMIZERS[which])
    found = [run(driver_models.training_step, model, which)]
    if is_captured(which):  # also as it is captured before there are traces
        found.append(run(driver_models.training_step, model, which, before=NEVER))
    return added(found)


def run_large(first, last):
    """The problems of ops on large tensors, by their numbers."""
    found = [
        run(driver_large.large_op, name, calls=1, depth="ir")
        for name in [*driver_large.OPS][first:last]
    ]
    return added(found)


def added(found):
    """The problems of several runs, and their launches and forms together."""
    texts = [text for texts, _, _ in found for text in texts]
    return texts, sum(launches for _, launches, _ in found), sum(forms for *_, forms in found)


def is_captured(mode):
    """Whether a step is captured as CUDA graphs, by the name of its mode."""
    return str(mode).startswith("captured")


def run(make, *called, calls=CALLS, depth="binary", before=1):
    """The problems of the step that `make(*called)` returns; `before` as in `traced_after`."""
    title = " ".join(map(str, called))
    with GpuDriver(depth) as gpu, traced_after(before):
        step = make(*called)
        if is_captured(called[-1]):
            texts = [*driver_models.capture_faults(gpu, step)]
        else:
            for _ in range(calls - 1):
                step()
            gpu.torch_work.clear()
            step()
            texts = [*torch_faults(gpu.torch_work)] if calls > 1 else []
        del step
    gc.collect()  # steps are cycles, and hold parameters and the states of optimizers
    texts = [f"{title}: {text}" for text in [*wrong(gpu.problems), *texts]]
    return texts, gpu.launches.total(), len(gpu.forms)


def torch_faults(work):
    """What torch computed in a step, and is not listed."""
    for (module, operator), count in sorted(work.items()):
        allowed = IN_STEPS.get(module, ("", ""))[0].split()
        if operator not in {*allowed, *torch_inside.ALLOWED, REPLAYED} and allowed != ["*"]:
            yield f"{module} leaves {operator} to torch, {count} times"


def work(kind, *task):
    """One task, in a worker."""
    torch.set_num_threads(1)
    if kind == "whole step":
        return run(driver_whole_steps.whole_step, *task)
    if kind == "large tensors":
        return run_large(*task)
    if kind == "family":
        return run(driver_families.family_step, *task, depth="ir")
    return run_samples(*task) if kind == "samples" else run_step(*task)


def tasks(everything):
    """What to run, the longest first."""
    found = [("whole step", *called) for called in driver_whole_steps.STEPS]
    found += [("step of", model, mode) for model, mode in STEPS]
    found += [("family", *step) for step in driver_families.STEPS]
    found += [("step of", "", number) for number in range(len(OPTIMIZERS))]
    found += [("large tensors", n, n + CHUNK) for n in range(0, len(driver_large.OPS), CHUNK)]
    runs = [
        ("float32", "binary", 1, "local"),
        ("bfloat16", "ir", 2, "local"),
        ("float64", "none", ALL, "local"),
        ("float32", "none", 1, "two ranks"),
    ]
    if everything:
        runs = [
            (dtype, "binary", ALL, ranks)
            for dtype in ("float32", "bfloat16", "float64")
            for ranks in ("local", "two ranks")
        ]
    for dtype, depth, most, ranks in runs:
        size = CHUNK if depth == "binary" else 10 * CHUNK
        found += [
            ("samples", dtype, depth, first, first + size, most, ranks)
            for first in range(0, len(chosen(most)), size)
        ]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every sample, compiled to binaries")
    parser.add_argument("--match", default="", help="only tasks whose text has this in it")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    todo = [task for task in tasks(options.all) if options.match in " ".join(map(str, task))]
    problems, totals, began = [], Counter(), time.monotonic()

    def done(task, result, error):
        title = " ".join(map(str, task))
        if result is None:
            problems.append(f"{title}: {error}")
            return
        texts, launches, forms = result
        problems.extend(texts)
        totals.update(launches=launches, forms=forms)
        seconds = time.monotonic() - began
        print(f"{seconds:4.0f} s  {title}: {launches} launches, {forms} forms", flush=True)

    workers.run(work, todo, options.processes, LIMIT, done)
    for text in dict.fromkeys(problems):
        print(text)
    count = sum(NOTE not in text for text in problems)
    print(f"{totals['launches']} launches, {totals['forms']} forms, {count} problems")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
