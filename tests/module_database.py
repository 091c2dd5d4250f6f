"""Torch's database of modules: each built with the same weights here, local and in layouts."""

import copy
import random
import warnings
from importlib import import_module
from pathlib import Path

import torch
from operator_database import Difference, same
from stage_table import StageTable

from onefold import nn
from onefold.engine import autograd_api as autograd
from onefold.engine.ops.creation import tensor
from onefold.engine.placement import Placement
from onefold.engine.sbp import broadcast, split
from onefold.engine.tensor import Tensor
from onefold.testing.samples import flat

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    DATABASE = import_module("torch.testing._internal.common_modules").module_db

# How far a module comes in every sample: built with torch's state, forward, backward.
STAGES = ("nothing", "built", "forward", "backward")
TABLE = StageTable(Path(__file__).with_name("module_database.txt"), STAGES[-1])
PLACEMENTS = (None, Placement("cpu", [0, 1]), Placement("cpu", [[0, 1], [2, 3]]))
MOST = 6


def name_of(entry):
    return entry.module_cls.__name__


class Place:
    """Where the tensors of one sample are, and how those with a batch are split."""

    def __init__(self, draw):
        self.placement = draw.choice(PLACEMENTS)
        self.draw = draw

    def __call__(self, value):
        """(torch's, ours)"""
        if isinstance(value, (list, tuple)):
            pairs = [self(part) for part in value]
            kind = type(value) if type(value) in (list, tuple) else tuple
            return kind(a for a, _ in pairs), kind(b for _, b in pairs)
        if not isinstance(value, torch.Tensor):
            return value, copy.deepcopy(value)
        x = value.detach().clone()
        if self.placement is None:
            ours = tensor(x)
        else:
            dims = [split(0)] if x.ndim else []
            sbp = [self.draw.choice([*dims, broadcast]) for _ in range(self.placement.ndim)]
            ours = tensor(x, placement=self.placement, sbp=tuple(sbp))
        if value.requires_grad:
            x.requires_grad_()
            ours.requires_grad_()
        return x, ours


def settings(value):
    """An argument of a constructor: tensors become ours."""
    return tensor(value) if isinstance(value, torch.Tensor) else value


def pair_of_modules(entry, given):
    """(torch's module, ours with its state)"""
    theirs = entry.module_cls(*given.args, **given.kwargs).double()
    ours = getattr(nn, name_of(entry))(
        *map(settings, given.args), **{key: settings(each) for key, each in given.kwargs.items()}
    )
    ours = ours.double()
    ours.load_state_dict(theirs.state_dict())
    if list(ours.state_dict()) != list(theirs.state_dict()):
        raise Difference(f"keys {list(ours.state_dict())}, not {list(theirs.state_dict())}")
    if repr(ours) != repr(theirs):
        raise Difference(f"{ours!r}, not {theirs!r}")
    return theirs, ours


def run_sample(entry, sample, draw, training):
    theirs, ours = pair_of_modules(entry, sample.constructor_input)
    yield "built"
    if sample.forward_input is None:
        yield "backward"
        return
    place = Place(draw)
    theirs.train(training)
    ours.train(training)
    if place.placement is not None:
        ours.to_global(place.placement, (broadcast,) * place.placement.ndim)
    positional = [place(value) for value in sample.forward_input.args]
    named = {key: place(value) for key, value in sample.forward_input.kwargs.items()}
    torch.manual_seed(0)
    wanted = theirs(*[a for a, _ in positional], **{key: v[0] for key, v in named.items()})
    found = ours(*[b for _, b in positional], **{key: v[1] for key, v in named.items()})
    outputs = flat(wanted, torch.Tensor), flat(found, Tensor)
    same(*outputs, 1e-6)
    yield "forward"
    pairs = [(a, b) for a, b in zip(*outputs, strict=True) if a.requires_grad]
    inputs = [*(v for pair in positional for v in [pair]), *named.values()]
    leaves = [
        (*flat([pair[0] for pair in inputs], torch.Tensor), *theirs.parameters()),
        (*flat([pair[1] for pair in inputs], Tensor), *ours.parameters()),
    ]
    both = [(a, b) for a, b in zip(*leaves, strict=True) if a.requires_grad]
    if pairs and both:
        total = [
            sum((x * (x * 0.3).cos()).sum() for x in side) for side in zip(*pairs, strict=True)
        ]
        grads = torch.autograd.grad(
            total[0], [a for a, _ in both], allow_unused=True, materialize_grads=True
        )
        own = autograd.grad(total[1], [b for _, b in both], allow_unused=True)
        for a, b in zip(grads, own, strict=True):
            if b is not None:
                same([a], [b], 1e-5)
            elif a.count_nonzero():
                raise Difference("no gradient")
    yield "backward"


def stage(entry):
    """(the last stage that all samples reach, what went wrong at the next)"""
    draw = random.Random(name_of(entry))
    least, why = len(STAGES) - 1, ""
    for training in (True, False):
        torch.manual_seed(0)
        samples = entry.module_inputs_func(
            entry, device="cpu", dtype=torch.float64, requires_grad=True, training=training
        )
        for sample in list(samples)[:MOST]:
            reached = 0
            try:
                for name in run_sample(entry, sample, draw, training):
                    reached = STAGES.index(name)
            except (Difference, TypeError, ValueError, RuntimeError, IndexError, AttributeError,
                    NotImplementedError, AssertionError) as error:  # fmt: skip
                if reached < least:
                    least, why = reached, f"{type(error).__name__}: {' '.join(str(error).split())}"
    return STAGES[least], why
