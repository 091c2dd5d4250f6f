"""Torch's database of operators: its samples run on tensors in random layouts."""

import random
import warnings
from importlib import import_module
from pathlib import Path

import torch
from stage_table import StageTable

from onefold.engine import autograd_api as autograd
from onefold.engine.ops.creation import tensor
from onefold.engine.placement import Placement
from onefold.engine.sbp import broadcast, split
from onefold.engine.tensor import Tensor
from onefold.errors import OnefoldError
from onefold.testing.samples import flat

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    DATABASE = import_module("torch.testing._internal.common_methods_invocations").op_db


# How far an entry comes: what it is right in, in every sample that torch itself can run.
STAGES = ("nothing", "value", "gradient", "second gradient")
TABLE = StageTable(Path(__file__).with_name("operator_database.txt"), STAGES[-1])
MOST = 5  # samples of each entry
PLACEMENTS = (Placement("cpu", [0, 1, 2]), Placement("cpu", [[0, 1], [2, 3]]))


def name_of(entry):
    return ".".join(filter(None, (entry.name, entry.variant_test_name)))


def dtype_of(entry):
    """The dtype that tells most: differences are not lost in rounding."""
    for dtype in (torch.float64, torch.float32):
        if dtype in entry.dtypes:
            return dtype
    return min(entry.dtypes, key=str)


def is_dense(entry):
    """Whether it is a function of values: no factory, nothing random, sparse or for strides."""
    unfit = (
        "empty",
        "fractional",
        "rand",
        "sparse",
        "bernoulli",
        "multinomial",
        "dropout",
        "normal_",
    )
    return bool(entry.dtypes) and not any(word in entry.name for word in unfit)


class Difference(Exception):
    """What Onefold makes of a sample is not what torch makes."""


class Pairs:
    """Values of torch next to ours, which are laid out at random."""

    def __init__(self, draw, differentiable):
        self.draw = draw
        self.differentiable = differentiable
        self.placement = draw.choice(PLACEMENTS)

    def __call__(self, value):
        """(torch's, ours)"""
        if isinstance(value, (list, tuple)):
            pairs = [self(part) for part in value]
            kind = type(value) if type(value) in (list, tuple) else tuple
            return kind(a for a, _ in pairs), kind(b for _, b in pairs)
        if not isinstance(value, torch.Tensor):
            return value, value
        x = value.detach().clone()
        ours = tensor(x, placement=self.placement, sbp=self._sbp(x))
        if self.differentiable and x.is_floating_point():
            x.requires_grad_()
            ours.requires_grad_()
        return x, ours

    def _sbp(self, x):
        return tuple(
            split(self.draw.randrange(x.ndim)) if x.ndim and self.draw.random() < 0.7 else broadcast
            for _ in range(self.placement.ndim)
        )


def same(theirs, ours, tolerance):
    if len(theirs) != len(ours):
        raise Difference(f"{len(ours)} tensors, not {len(theirs)}")
    for a, b in zip(theirs, ours, strict=True):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            raise Difference(f"{tuple(b.shape)} {b.dtype}, not {tuple(a.shape)} {a.dtype}")
        close(a, b, tolerance)


def close(theirs, ours, tolerance):
    try:
        torch.testing.assert_close(
            ours.detach().to_torch(), theirs.detach(),
            rtol=tolerance, atol=tolerance, equal_nan=True,
        )  # fmt: skip
    except AssertionError as error:
        raise Difference(str(error)) from None


def gradients(theirs, ours, of_theirs, of_ours, again, tolerance):
    """The gradients of a number made of `theirs` and of `ours`, after they were compared."""
    grads = torch.autograd.grad(
        number(theirs), of_theirs, create_graph=again, allow_unused=True, materialize_grads=True
    )
    own = autograd.grad(number(ours), of_ours, create_graph=again, allow_unused=True)
    for a, b in zip(grads, own, strict=True):
        if b is not None:
            close(a, b, tolerance)
        elif a.count_nonzero():
            raise Difference("no gradient")
    pairs = [(a, b) for a, b in zip(grads, own, strict=True) if a.requires_grad and b is not None]
    return [a for a, _ in pairs], [b for _, b in pairs]


def number(tensors):
    """A number with gradients of all orders."""
    return sum(((x.abs() ** 2) if x.dtype.is_complex else x * (x * 0.3).cos()).sum()
               for x in tensors)  # fmt: skip


def run_sample(entry, sample, draw):
    """The stages that the sample reaches, one by one."""
    pairs = Pairs(draw, entry.supports_autograd)
    positional = [pairs(value) for value in (sample.input, *sample.args)]
    named = {name: pairs(value) for name, value in sample.kwargs.items()}
    inputs = [[*(pair[side] for pair in (*positional, *named.values()))] for side in (0, 1)]
    try:
        wanted = entry.op(*[a for a, _ in positional], **{n: v[0] for n, v in named.items()})
    except (RuntimeError, TypeError):  # torch itself refuses the sample: its tensors are leaves
        return
    function = entry.op
    if type(function).__name__ in ("method_descriptor", "wrapper_descriptor"):
        function = getattr(Tensor, function.__name__)
    found = function(*[b for _, b in positional], **{n: v[1] for n, v in named.items()})
    theirs, ours = flat(wanted, torch.Tensor), flat(found, Tensor)
    same(theirs, ours, 1e-6)
    yield "value"
    if not entry.supports_autograd:
        yield "gradient"
        yield "second gradient"
        return
    outputs = [(a, b) for a, b in zip(theirs, ours, strict=True) if a.requires_grad]
    theirs, ours = [a for a, _ in outputs], [b for _, b in outputs]
    leaves = [
        [x for x in flat(side, kind) if x.requires_grad]
        for side, kind in zip(inputs, (torch.Tensor, Tensor), strict=True)
    ]
    again = entry.supports_gradgrad
    if theirs:
        theirs, ours = gradients(theirs, ours, *leaves, again, 1e-5)
    yield "gradient"
    if theirs and again:
        gradients(theirs, ours, *leaves, False, 1e-4)
    yield "second gradient"


def stage(entry):
    """(the last stage that all samples reach, what went wrong at the next)"""
    draw = random.Random(name_of(entry))
    samples = list(entry.sample_inputs("cpu", dtype_of(entry), requires_grad=False))[:MOST]
    least, why = len(STAGES) - 1, ""
    for sample in samples:
        reached = 0
        try:
            for name in run_sample(entry, sample, draw):
                reached = STAGES.index(name)
        except (Difference, OnefoldError, TypeError, ValueError, RuntimeError, IndexError,
                AttributeError, NotImplementedError, AssertionError) as error:  # fmt: skip
            text = f"{type(error).__name__}: {' '.join(str(error).split())}"
            if reached < least:
                least, why = reached, text
    return STAGES[least], why


def right_names():
    """The names of functions whose values in all samples are known to be right."""
    wrong = {name for name, (stage, _) in TABLE.read().items() if stage == STAGES[0]}
    return {
        entry.name.removeprefix("nn.functional.")
        for entry in DATABASE
        if name_of(entry) not in wrong
    }
