"""Random programs of tensors that share memory, each of which is written: torch is the oracle.

Views share what is written; copies, arrays and what backward needs keep what they had.
"""

import copy
from contextlib import nullcontext

import numpy as np
import pytest
import torch
import view_programs
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import onefold as flow
from onefold.distributed.world import virtual_world
from onefold.errors import AutogradError
from onefold.testing.manual_layouts import make_global
from onefold.testing.sample_checks import value_of
from onefold.testing.strategies import nd_sbps, placements, shapes

# Copies of a tensor that share its memory until one of them is written.
COPIES = {
    "clone": lambda x: x.clone(),
    "copy_": lambda x: flow.empty_like(x).copy_(x),
    "parameter": lambda x: flow.nn.Parameter(x.detach()),
    "parameter of itself": flow.nn.Parameter,
    "buffer": flow.nn.Buffer,
    "deepcopy": lambda x: copy.deepcopy(x.detach()),
    "copy": lambda x: copy.copy(flow.nn.Parameter(x)),
    "data": lambda x: new_data(flow.zeros_like(x), x),
    "from_torch": lambda x: flow.from_torch(x.to_torch()) if x.is_local else x.clone(),
    "from_numpy": lambda x: flow.from_numpy(x.numpy()) if x.is_local else x.clone(),
    "to_local": lambda x: x.clone() if x.is_local else x.to_global(sbp=x.sbp, copy=True),
}


def new_data(x, value):
    x.data = value
    return x


def differentiated(loss, errors):
    try:
        loss.backward()
    except errors:
        return False
    return True


class Saved:
    """Leaves, the results of one function of each, and the gradient that they are to have."""

    def __init__(self, leaves, function, gradient):
        self.ours, self.theirs = (leaf.requires_grad_() for leaf in leaves)
        self.results = [function(self.ours), function(self.theirs)]
        self.losses = [result.sum() for result in self.results]
        self.gradient = gradient

    def check(self, strict):
        """The gradient is right, or an error: if strict only where torch has one."""
        if not differentiated(self.losses[0], AutogradError):
            assert not strict or not differentiated(self.losses[1], RuntimeError)
        else:
            torch.testing.assert_close(value_of(self.ours.grad), self.gradient)


class SharedWrites(RuleBasedStateMachine):
    """Pairs of a tensor here and in torch, of one layout."""

    local = True

    def __init__(self):
        super().__init__()
        self.world = virtual_world()
        self.world.__enter__()
        self.pool, self.kept, self.saved = [], [], []
        self.strict = True  # until `data` is used, through which torch does not notice writes

    def teardown(self):
        self.world.__exit__(None, None, None)

    @initialize(data=st.data())
    def start(self, data):
        self.draw = lambda choices: data.draw(st.sampled_from(choices))
        shape = data.draw(shapes(1, 3, 1, 4))
        count = torch.Size(shape).numel()
        value = torch.arange(float(count), dtype=torch.float64).reshape(shape)
        if self.local:
            self.placement = None
            ours = flow.tensor(value.tolist(), dtype=flow.float64)
            ours = ours + 0 if self.draw([True, False]) else ours
        else:
            self.placement = data.draw(placements(max_ranks=4))
            ours = make_global(
                value, self.placement, data.draw(nd_sbps(shape, self.placement.ndim))
            )
        self.pool.append((ours, value.clone(), False))

    def make(self, values):
        if self.placement is None:
            return flow.tensor(values, dtype=flow.float64)
        return view_programs.maker(self.placement)(values)

    def one(self):
        return self.draw(self.pool)

    def choose(self, data):
        self.draw = lambda choices: data.draw(st.sampled_from(choices))

    @rule(data=st.data())
    def view(self, data):
        self.choose(data)
        ours, theirs, unsure = self.one()
        name, args = view_programs._view(self.draw, theirs)
        self.strict &= name != "data"
        with torch.no_grad(), flow.no_grad():
            try:
                made = view_programs.view(theirs, name, args)
            except (RuntimeError, IndexError):
                return
            found = view_programs.view(ours, name, args)
        several = isinstance(made, (tuple, list))
        for pair in zip(found, made, strict=True) if several else [(found, made)]:
            self.pool.append((*pair, unsure or name in view_programs.UNSURE))

    @rule(data=st.data())
    def write(self, data):
        self.choose(data)
        ours, theirs, unsure = self.one()
        if unsure:
            return
        name, args = view_programs._write(self.draw, theirs, False)
        off = ours.requires_grad or theirs.requires_grad or self.draw([True, False])
        with torch.no_grad() if off else nullcontext(), flow.no_grad() if off else nullcontext():
            try:
                view_programs.write(theirs, name, args, None, view_programs._torch_tensor)
            except (RuntimeError, IndexError):
                return
            view_programs.write(ours, name, args, None, self.make)

    @rule(data=st.data(), name=st.sampled_from(["copy_", "add_", "mul_", "setitem", "clamp_min_"]))
    def write_another(self, data, name):
        """What is written may be in the same memory."""
        self.choose(data)
        ours, theirs, unsure = self.one()
        same = [pair for pair in self.pool if pair[1].shape == theirs.shape]
        source, values, _ = self.draw(same)
        if unsure:
            return
        with torch.no_grad(), flow.no_grad():
            values = values.detach().clone()
            if name == "setitem":
                theirs[...] = values
                ours[...] = source
            else:
                getattr(theirs, name)(values)
                getattr(ours, name)(source)

    @rule(data=st.data(), name=st.sampled_from([*COPIES]))
    def copy(self, data, name):
        self.choose(data)
        ours, theirs, _ = self.one()
        with flow.no_grad():
            made = COPIES[name](ours)
        made = made.detach() if made.requires_grad and self.draw([True, False]) else made
        value = theirs.detach().clone().contiguous().requires_grad_(made.requires_grad)
        self.pool.append((made, value, False))

    @rule(data=st.data())
    def keep(self, data):
        """An array of the caller's, which no write reaches."""
        self.choose(data)
        ours = self.one()[0].detach()
        kept = self.draw([ours.numpy, ours.to_torch])()
        self.kept.append((kept, torch.as_tensor(kept).clone()))

    @rule()
    def share_array(self):
        """A tensor in the memory of an array."""
        if self.local:
            array = np.arange(12.0).reshape(3, 4)
            self.kept.append((array, torch.tensor(array)))
            self.pool.append((flow.from_numpy(array), torch.tensor(array), False))

    @rule(data=st.data())
    def save(self, data):
        self.choose(data)
        ours, theirs = (x.detach() for x in self.one()[:2])
        leaves = flow.ones_like(ours), torch.ones_like(theirs)
        times = {id(leaf): x for leaf, x in zip(leaves, (ours, theirs), strict=True)}
        self.saved.append(Saved(leaves, lambda leaf: leaf * times[id(leaf)], theirs.clone()))

    @rule(data=st.data())
    def save_output(self, data):
        """A result that is kept for its gradient, and is written outside of the tape."""
        self.choose(data)
        ours, theirs, _ = self.one()
        leaves = [x.detach().clamp(1, 4) for x in (ours, theirs)]
        saved = Saved(leaves, lambda leaf: leaf.sqrt(), 0.5 / leaves[1].sqrt())
        self.pool.append((*saved.results, False))
        self.saved.append(saved)

    @rule(data=st.data())
    def take_data(self, data):
        self.choose(data)
        ours, theirs, unsure = self.one()
        source, values, _ = self.draw([pair for pair in self.pool if pair[1].shape == theirs.shape])
        if ours is source or unsure:
            return
        self.strict = False
        ours.data = source.detach()
        theirs.data = values.detach().clone().contiguous()

    @rule(data=st.data())
    def backward(self, data):
        self.choose(data)
        if self.saved:
            self.saved.pop(self.draw(range(len(self.saved)))).check(self.strict)

    @rule(data=st.data(), count=st.integers(1, 3))
    def drop(self, data, count):
        self.choose(data)
        for _ in range(count):
            if len(self.pool) > 1:
                chosen = self.draw(range(len(self.pool)))
                del self.pool[chosen]
        if self.kept and self.draw([True, False]):
            self.kept.pop()

    @invariant()
    def all_are_torchs(self):
        for ours, theirs, _ in self.pool:
            torch.testing.assert_close(value_of(ours), theirs.detach(), rtol=0, atol=0)
        for array, before in self.kept:
            torch.testing.assert_close(torch.as_tensor(array), before, rtol=0, atol=0)


class SharedGlobalWrites(SharedWrites):
    local = False


def case(machine, examples):
    found = machine.TestCase
    found.settings = settings(max_examples=examples, stateful_step_count=20)
    return pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")(found)


TestLocal = case(SharedWrites, 100)
TestGlobal = case(SharedGlobalWrites, 25)


@pytest.mark.parametrize(
    "call",
    [
        "x[:, 1:] = x[:, :-1]", "x[:, 1:].copy_(x[:, :-1])", "x[:, 1:].add_(x[:, :-1])",
        "x[1:].mul_(x[:-1])", "x[::2, 1:].lerp_(x[::2, :-1], 0.5)", "x.t()[1:].copy_(x.t()[:-1])",
        "x.view(-1)[1:].sub_(x.view(-1)[0])", "x[:3, :3].copy_(x[:3, :3].t())", "x[1] += x[1]",
"x[0].div_(x[0, 2])", "x[1:, 0] = x[0, 1:4]",
    ],
)  # fmt: skip
@pytest.mark.parametrize("kept", ["x[0]", "x", "x.view(-1)"])
def test_what_overlaps_is_read_before_it_is_written(call, kept):
    """As if the values were a copy; torch refuses some of these, and others are undefined there."""
    values = torch.arange(1.0, 21.0).reshape(4, 5)
    x = flow.tensor(values.tolist())
    kept, copies = eval(kept), call.partition("(" if "(" in call else "= ")
    exec(call, {"x": x})
    target, between, source = copies
    exec(target + between + source.replace("x", "y"), {"x": values, "y": values.clone()})
    assert x.tolist() == values.tolist()
    assert kept.tolist() == values.flatten()[: kept.numel()].reshape(kept.shape).tolist()
