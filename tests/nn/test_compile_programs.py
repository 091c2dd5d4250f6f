"""flow.compile of random programs, and of random views and writes, whose bits are eager's."""

import pytest
import torch
import view_programs
from hypothesis import given, settings, strategies as st

import onefold as flow
from onefold.testing.manual_layouts import like, make_global
from onefold.testing.program_builder import Input
from onefold.testing.program_calls import STEPS
from onefold.testing.random_programs import _Onefold, programs
from onefold.testing.sample_checks import random_gradients

pytestmark = pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")


def assert_same_bits(found, wanted):
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert ours.meta is theirs.meta
            for a, b in zip(ours.shards, theirs.shards, strict=True):
                torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@given(programs(), st.integers(0, 9))
def test_random_programs(program, seed):
    places = [flow.placement("cpu", ranks) for ranks in program.placements]
    lib = _Onefold(places)
    inputs = {i: item for i, item in enumerate(program.items) if isinstance(item, Input)}

    def leaves():
        made = []
        for index, item in inputs.items():
            value = item.values(1000 * seed + index)
            x = make_global(value, places[item.placement], item.nd_sbp, seed)
            made.append(x.requires_grad_(item.dtype.is_floating_point))
        return made

    def function(*tensors):
        given, pool = iter(tensors), []
        for item in program.items:
            if isinstance(item, Input):
                pool.append(next(given))
            else:
                pool.append(STEPS[item.name](lib, *[pool[i] for i in item.inputs], *item.attrs))
        return pool

    def results(run):
        tensors = leaves()
        pool = run(*tensors)
        # What arguments get from outside and from the program is added in another order.
        ends = {i: x for i, x in enumerate(pool) if x.requires_grad and not x.is_leaf}
        needing = [x for x in tensors if x.requires_grad]
        return [*pool, *random_gradients(ends, needing, like, flow.autograd.grad, seed)]

    compiled = flow.compile(function)
    wanted = results(function)
    for _ in range(2):
        assert_same_bits(results(compiled), wanted)
    assert len(compiled._entries) == 1


@settings(max_examples=100)
@given(view_programs.cases())
def test_random_views_and_writes(case):
    """A program that changes its argument; the results are then views of it, and written."""
    program, placement, _ = case

    def function(x):
        return view_programs.run(program, x, None, view_programs.maker(placement))

    def results(run):
        x = view_programs.base_of_case(*case)
        pool = run(x)
        found = [each.clone() for each in (x, *pool)]
        for each in pool:
            if each.numel():
                try:
                    each.add_(1)
                except flow.OnefoldError:  # of a view with elements that overlap
                    continue
                found += [other.clone() for other in (x, *pool)]
        return found

    compiled = flow.compile(function)
    wanted = results(function)
    for _ in range(2):
        assert_same_bits(results(compiled), wanted)


@settings(max_examples=100)
@given(view_programs.cases(recorded=True))
def test_gradients_of_random_views_and_writes(case):
    program, placement, _ = case

    def function(x, scale):
        return view_programs.run(program, x, scale, view_programs.maker(placement))

    def results(run):
        leaf = view_programs.base_of_case(*case).requires_grad_()
        scale = view_programs.maker(placement)(3.0).requires_grad_()
        x = leaf * 1
        pool = run(x, scale)
        total = (scale * 0).sum()
        for number, each in enumerate((x, *pool)):
            if each.requires_grad:
                total = total + (each * each * (number + 1)).sum()
        facts = [each.detach() for each in (x, *pool)]
        return [*facts, *flow.autograd.grad(total, [leaf, scale], allow_unused=True)]

    compiled = flow.compile(function)
    wanted = results(function)
    for _ in range(2):
        found = results(compiled)
        assert_same_bits(found[:-2], wanted[:-2])
        for ours, theirs in zip(found[-2:], wanted[-2:], strict=True):
            assert (ours is None) == (theirs is None)
            if ours is not None:
                # What x gets from the program and from outside may be added in another order.
                torch.testing.assert_close(ours.numpy(), theirs.numpy(), rtol=1e-12, atol=1e-12)
