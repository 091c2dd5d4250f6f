"""Tensors that require no gradient for a while keep `.grad` and hooks, as in torch."""

import numpy as np
import pytest
import torch

import onefold as flow


def both(program):
    """What the program gives with torch, and here."""
    return program(torch), program(flow)


def frozen_and_back(lib):
    w = lib.ones(2, requires_grad=True)
    calls = []
    w.register_post_accumulate_grad_hook(lambda w: calls.append(1))
    (w * 2).sum().backward()
    w.requires_grad = False
    before = w.grad.tolist()
    w.requires_grad_(True)
    (w * 3).sum().backward()
    return before, w.grad.tolist(), len(calls)


def detached_in_place(lib):
    """As if it was frozen: its `.grad` stays, and an earlier graph does not reach it."""
    w = lib.ones(2, requires_grad=True)
    (w * 2).sum().backward()
    loss = (w * 5).sum()
    w.detach_()
    before = w.grad.tolist(), w.requires_grad
    loss.backward()
    w.requires_grad_(True)
    (w * 3).sum().backward()
    return before, w.grad.tolist()


def built_before(lib):
    """A graph that was made before one of its tensors was frozen."""
    w, v = (lib.ones(2, requires_grad=True) for _ in "wv")
    loss = (w * v).sum() + w.sum()
    again = (w * 5).sum()
    w.requires_grad_(False)
    loss.backward()
    while_frozen = w.grad
    w.requires_grad_(True)
    again.backward()
    return while_frozen, v.grad.tolist(), w.grad.tolist()


def given(lib):
    x = lib.ones(2)
    x.grad = lib.full((2,), 3.0)
    optimizer = lib.optim.SGD([x], lr=1.0)
    optimizer.step()
    grad = x.grad.tolist()
    optimizer.zero_grad()
    return x.tolist(), grad, x.grad, x.requires_grad


@pytest.mark.parametrize("program", [frozen_and_back, detached_in_place, built_before, given])
def test_as_in_torch(program):
    theirs, ours = both(program)
    assert ours == theirs


def test_global_gradients_stay(world):
    p = flow.placement("cpu", [0, 1])
    w = flow.ones(4, 2, placement=p, sbp=flow.sbp.split(0), requires_grad=True)
    (w * 2).sum().backward()
    w.requires_grad_(False)
    np.testing.assert_array_equal(w.grad.numpy(), np.full((4, 2), 2.0))
    w.requires_grad_(True)
    (w * 2).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), np.full((4, 2), 4.0))
