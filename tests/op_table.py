"""Finds out which Triton kernels the ops use, and what they leave to torch, by running samples."""

import os
import warnings
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from unittest import mock

import samples
from torch.utils._python_dispatch import TorchDispatchMode

from onefold import FallbackWarning
from onefold.engine import dispatch_plan, op as op_module
from onefold.engine.placement import Placement
from onefold.graph.passes import pass_utils
from onefold.kernels import coverage, select
from onefold.testing.gpu_driver.torch_work import is_work
from onefold.testing.sample_checks import global_results, local_results, spread


@dataclass(frozen=True, slots=True)
class Row:
    """What one op uses: Triton kernels, and operators of torch that compute or move values."""

    triton: tuple[str, ...]
    torch: tuple[str, ...]


def missing(rows, ops):
    """The ops that use torch without a reason, or that were never run."""
    return [
        name
        for name in ops
        if name not in coverage.REASONS and (name not in rows or rows[name].torch)
    ]


class Record(TorchDispatchMode):
    """While it is active, what each op does is noted."""

    def __init__(self):
        super().__init__()
        self.triton = defaultdict(set)
        self.torch = defaultdict(set)
        self.ran = set()
        self.running = []  # the op whose kernel runs; None inside what a Triton kernel would do

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if self.running and self.running[-1] is not None and is_work(function):
            self.torch[self.running[-1]].add(function._schema.name.removeprefix("aten::"))
        return function(*args, **(kwargs or {}))

    @contextmanager
    def inside(self, name):
        self.running.append(name)
        try:
            yield
        finally:
            self.running.pop()

    def making(self, make):
        """A function that makes what runs an op, and its kernel or None, under the op's name."""

        def made(op, *args):
            with self.inside(None):
                self.making_for = op.name
                run, kernel = make(op, *args)
            self.ran.add(op.name)

            def named(function, *inputs):
                with self.inside(op.name):
                    return function(*inputs)

            return partial(named, run), kernel and partial(named, kernel)

        return made

    def pick(self, local, reference):
        """Instead of `Local.pick`: the reference, silently, where there is a Triton kernel."""
        return self.used(reference, reference)

    def used(self, reference, does):
        """What the reference's Triton kernel would do where there is one, done silently by
        `does`.
        """
        triton_kernel = select.triton_kernel(reference)
        if triton_kernel is None:
            return does
        module = triton_kernel.__module__.rpartition(".")[2]
        self.triton[self.making_for].add(f"{module}.{reference.__name__}")

        return self._unnoted(does)

    def _unnoted(self, does):
        """A function whose work is not noted; nor that of what it makes, if that is a function."""

        def stand_in(*args, **kwargs):
            with self.inside(None):
                result = does(*args, **kwargs)
            return self._unnoted(result) if callable(result) else result

        return stand_in

    def pick_into(self, local, reference, into):
        """Instead of `Local.pick_into`."""
        return self.used(reference, into)

    def rows(self):
        """What was noted, by op."""
        return {
            name: Row(tuple(sorted(self.triton[name])), tuple(sorted(self.torch[name])))
            for name in sorted(dispatch_plan.ops)
            if name in self.ran
        }


# Where ops, and the steps that passes of a graph change, get the functions that run them.
MAKERS = [
    (dispatch_plan, "runner"),
    (dispatch_plan, "local_runner"),
    (pass_utils, "runner"),
]


@contextmanager
def recording():
    """A record of what ops do inside; plans that were made before are forgotten."""
    record = Record()
    dispatch_plan.clear_plans()

    def pick(local, reference):
        return record.pick(local, reference)

    def pick_into(local, reference, into):
        return record.pick_into(local, reference, into)

    with ExitStack() as stack:
        for module, name in MAKERS:
            made = record.making(getattr(module, name))
            stack.enter_context(mock.patch.object(module, name, made))
        stack.enter_context(mock.patch.dict(os.environ, {"ONEFOLD_KERNELS": "triton"}))
        stack.enter_context(mock.patch.object(op_module.Local, "pick", pick))
        stack.enter_context(mock.patch.object(op_module.Local, "pick_into", pick_into))
        stack.enter_context(record)
        yield record
    dispatch_plan.clear_plans()


def observe(some=None):
    """Run samples (all of them), and return what each op of the engine was seen to do."""
    with warnings.catch_warnings(), recording() as record:
        warnings.simplefilter("ignore", FallbackWarning)
        for sample in samples.load() if some is None else some:
            local_results(sample, second=False)  # some gradients have a form for this case only
            local_results(sample, second=True)
            placement = Placement("cpu", [0, 1])
            for nd_sbps in spread(sample.tensors(), placement, 2, sample.seed):
                global_results(sample, placement, nd_sbps)
    return record.rows()
