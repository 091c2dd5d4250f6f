"""The gates of recurrent cells as one op: the bits of smaller ops, and second gradients."""

import pytest
import torch

import onefold as flow
from onefold.engine.ops import recurrent_steps
from onefold.testing.manual_layouts import make_local
from onefold.testing.recording import record

INPUT, HIDDEN, BATCH = 3, 5, 7  # no multiples of the elements that a processor takes at once


def values(dtype):
    generator = torch.Generator().manual_seed(0)
    rows = 3 * HIDDEN
    shapes = [(BATCH, INPUT), (BATCH, HIDDEN), (rows, INPUT), (rows, HIDDEN), (rows,), (rows,)]
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]


def two_steps(cell, x, state, *weights):
    return cell(x, cell(x, state, *weights), *weights)


def results(dtype):
    leaves = [make_local(x).requires_grad_() for x in values(dtype)]
    with record() as recorder:
        y = two_steps(flow.gru_cell, *leaves)
        y.square().sum().backward()
    ran = {call.op.name for call in recorder.calls.values()}
    return ran, [y.detach().to_torch(), *[x.grad.to_torch() for x in leaves]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_one_op_gives_the_bits_of_the_smaller_ones(dtype, monkeypatch, world):
    ran, mine = results(dtype)
    assert {"gru_gates", "gru_gates_grad"} <= ran
    assert "sigmoid" not in ran
    monkeypatch.setattr(recurrent_steps, "fuses_gates", lambda *tensors: False)
    ran, right = results(dtype)
    assert "gru_gates" not in ran
    for one, other in zip(mine, right, strict=True):
        assert torch.equal(one, other)


def test_second_gradients(world):
    def gradients(cell, grad, leaves):
        y = two_steps(cell, *leaves)
        first = grad(y.square().sum(), leaves, create_graph=True)
        return grad(sum(g.square().sum() for g in first), leaves)

    mine = [make_local(x).requires_grad_() for x in values(torch.float64)]
    theirs = [x.requires_grad_() for x in values(torch.float64)]
    found = gradients(flow.gru_cell, flow.autograd.grad, mine)
    right = gradients(torch.gru_cell, torch.autograd.grad, theirs)
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one.to_torch(), other)


def test_in_a_graph_and_global_the_cell_is_smaller_ops(world):
    ranks = flow.placement("cpu", [0, 1])
    tensors = [make_local(x) for x in values(torch.float64)]
    split = [flow.sbp.split(0)] * 2 + [flow.sbp.broadcast] * 4
    right = torch.gru_cell(*values(torch.float64))
    laid = [x.to_global(ranks, flow.sbp.broadcast) for x in tensors]
    laid = [x.to_global(ranks, sbp) for x, sbp in zip(laid, split, strict=True)]
    torch.testing.assert_close(flow.gru_cell(*laid).numpy(), right.numpy())
    step = flow.nn.Graph.trace(flow.gru_cell)
    torch.testing.assert_close(step(*tensors).numpy(), right.numpy())
    assert "gru_gates" not in {each.name for each in step.program.steps}
