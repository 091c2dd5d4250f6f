"""An optimizer writes into the memory of its parameters, and into no memory of anybody else's."""

import numpy as np
import pytest
import torch

import onefold as flow
from onefold import nn

F = nn.functional


def stepped(p, loss):
    """Whether a step of SGD leaves the parameter where it is."""
    optimizer = flow.optim.SGD([p], lr=0.5)
    before, p.grad = p.data_ptr(), None
    loss(p).backward()
    optimizer.step()
    return p.data_ptr() == before


READERS = {
    "transpose": lambda p: (flow.ones(2, 3) @ p.t()).sum(),
    "rows": lambda p: p[:2].sum(),
    "reshaped": lambda p: p.reshape(2, 6).sum(),
    "unbound": lambda p: sum(row.sum() for row in p.unbind(0)),
    "detached": lambda p: (p * p.detach()).sum(),
    "channels": lambda p: F.group_norm(flow.ones(2, 12, 4), 3, p.view(-1)).sum(),
    "running": lambda p: F.batch_norm(
        flow.ones(2, 12, 4), None, None, p.view(-1), None, True
    ).sum(),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_parameter_whose_views_are_gone_stays_where_it_is(reader):
    p = nn.Parameter(flow.ones(4, 3))
    stepped(p, READERS[reader])  # a new parameter may share its memory
    assert stepped(p, READERS[reader])


HOLDERS = {
    "view": flow.Tensor.detach,
    "clone": lambda p: p.clone(),
    "torch": lambda p: p.to_torch(),
    "numpy": lambda p: p.detach().numpy(),
    "memory of numpy": lambda p: memoryview(p.detach().numpy()),
    "dlpack": lambda p: p.to_torch().__dlpack__(),
    "storage": lambda p: p.detach().untyped_storage(),
}


def held(holder, kept):
    """The numbers that a holder sees; None where it is a view, and follows the parameter."""
    if holder == "dlpack":
        return torch.from_dlpack(kept).numpy()
    if holder == "storage":
        return np.array(kept.tolist(), np.uint8).view(np.float32)
    if holder == "view":
        return None
    return np.array(kept.numpy() if hasattr(kept, "numpy") else kept)


@pytest.mark.parametrize("holder", HOLDERS)
def test_memory_that_somebody_holds_is_left_alone(holder):
    p = nn.Parameter(flow.ones(4, 3))
    stepped(p, READERS["rows"])
    before = p.detach().numpy().copy()
    kept = HOLDERS[holder](p)
    stepped(p, READERS["rows"])
    seen = held(holder, kept)
    assert (p.detach().numpy()[0] == 0.0).all()
    if seen is not None:
        np.testing.assert_array_equal(seen.ravel(), before.ravel())
    else:
        np.testing.assert_array_equal(kept.numpy(), p.detach().numpy())


def test_memory_of_an_array_is_left_alone():
    values = np.ones((4, 3), np.float32)
    p = nn.Parameter(flow.from_numpy(values))
    stepped(p, READERS["rows"])
    assert (values == 1.0).all() and (p.detach().numpy()[:2] == 0.5).all()
