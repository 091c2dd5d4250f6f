"""The gates of recurrent cells as one op: the bits of smaller ops, and second gradients."""

import pytest
import torch

import onefold as flow
from onefold.engine.ops import recurrent_steps
from onefold.testing.manual_layouts import make_local
from onefold.testing.recording import record

INPUT, HIDDEN, BATCH = 3, 5, 7  # no multiples of the elements that a processor takes at once
GATES = {"gru": 3, "lstm": 4}


def values(mode, dtype):
    generator = torch.Generator().manual_seed(0)
    rows, states = GATES[mode] * HIDDEN, 1 + (mode == "lstm")
    shapes = [(BATCH, INPUT), *[(BATCH, HIDDEN)] * states]
    shapes += [(rows, INPUT), (rows, HIDDEN), (rows,), (rows,)]
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]


def steps(library, mode, tensors, count=2):
    """The last states after some steps."""
    x, *rest = tensors
    states, weights = rest[:-4], rest[-4:]
    for _ in range(count):
        if mode == "gru":
            states = [library.gru_cell(x, *states, *weights)]
        else:
            states = library.lstm_cell(x, states, *weights)
    return states


def results(mode, dtype, used):
    leaves = [make_local(x).requires_grad_() for x in values(mode, dtype)]
    with record() as recorder:
        states = steps(flow, mode, leaves)
        sum(states[i].square().sum() for i in used).backward()
    ran = {call.op.name for call in recorder.calls.values()}
    return ran, [x.detach().to_torch() for x in states] + [x.grad.to_torch() for x in leaves]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("mode", "used"), [("gru", [0]), ("lstm", [0]), ("lstm", [0, 1])])
def test_one_op_gives_the_bits_of_the_smaller_ones(mode, used, dtype, monkeypatch, world):
    ran, mine = results(mode, dtype, used)
    assert {f"{mode}_gates", f"{mode}_gates_grad"} <= ran
    assert "sigmoid" not in ran
    monkeypatch.setattr(recurrent_steps, "fuses_gates", lambda *tensors: False)
    ran, right = results(mode, dtype, used)
    assert f"{mode}_gates" not in ran
    for one, other in zip(mine, right, strict=True):
        assert torch.equal(one, other)


def test_the_inner_state_alone(world):
    leaves = [make_local(x).requires_grad_() for x in values("lstm", torch.float64)]
    steps(flow, "lstm", leaves)[1].square().sum().backward()
    right = [x.requires_grad_() for x in values("lstm", torch.float64)]
    steps(torch, "lstm", right)[1].square().sum().backward()
    for one, other in zip(leaves, right, strict=True):
        torch.testing.assert_close(one.grad.to_torch(), other.grad)


@pytest.mark.parametrize("mode", GATES)
def test_second_gradients(mode, world):
    def gradients(library, grad, leaves):
        loss = sum(state.square().sum() for state in steps(library, mode, leaves))
        first = grad(loss, leaves, create_graph=True)
        return grad(sum(g.square().sum() for g in first), leaves)

    mine = [make_local(x).requires_grad_() for x in values(mode, torch.float64)]
    theirs = [x.requires_grad_() for x in values(mode, torch.float64)]
    found = gradients(flow, flow.autograd.grad, mine)
    right = gradients(torch, torch.autograd.grad, theirs)
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one.to_torch(), other)


def test_of_global_tensors_and_in_graphs_the_cell_is_smaller_ops(world):
    ranks = flow.placement("cpu", [0, 1])
    tensors = [make_local(x) for x in values("gru", torch.float64)]
    split = [flow.sbp.split(0)] * 2 + [flow.sbp.broadcast] * 4
    right = torch.gru_cell(*values("gru", torch.float64))
    laid = [x.to_global(ranks, flow.sbp.broadcast) for x in tensors]
    laid = [x.to_global(ranks, sbp) for x, sbp in zip(laid, split, strict=True)]
    torch.testing.assert_close(flow.gru_cell(*laid).numpy(), right.numpy())
    step = flow.nn.Graph.trace(flow.gru_cell)
    torch.testing.assert_close(step(*tensors).numpy(), right.numpy())
    assert "gru_gates" not in {each.name for each in step.program.steps}
