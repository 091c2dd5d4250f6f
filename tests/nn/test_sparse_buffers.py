"""Sparse tensors are buffers of modules, as in torch: they move, are laid out, copied and saved."""

import copy

import pytest
import torch

import onefold as flow


def module_of(lib, persistent):
    """A layer whose weights are multiplied by a sparse matrix."""

    class Mixed(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = lib.nn.Parameter(lib.ones(3, 2))
            dense = lib.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])
            self.register_buffer("mixing", dense.to_sparse(), persistent=persistent)

        def forward(self, x):
            return x @ lib.sparse.mm(self.mixing, self.weight)

    return Mixed()


@pytest.mark.parametrize("persistent", [True, False])
def test_a_module_with_a_sparse_buffer(world, persistent):
    theirs, ours = module_of(torch, persistent), module_of(flow, persistent)
    assert ours.mixing.is_sparse
    assert ours.mixing.indices().tolist() == theirs.mixing.indices().tolist()
    wanted, found = theirs(torch.ones(4, 2)), ours(flow.ones(4, 2))
    assert found.tolist() == wanted.tolist()
    wanted.sum().backward()
    found.sum().backward()
    assert ours.weight.grad.tolist() == theirs.weight.grad.tolist()
    assert copy.deepcopy(ours).double().mixing.dtype is torch.float64
    other = module_of(flow, persistent)
    other.mixing = (flow.eye(3)[:2] * 5).to_sparse()
    assert bool(ours.state_dict().keys() - {"weight"}) == persistent
    spread = copy.deepcopy(ours).to_global(flow.placement("cpu", [0, 1]), flow.sbp.broadcast)
    x = flow.ones(4, 2, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.split(0))
    assert spread(x).tolist() == wanted.tolist()


def test_a_saved_sparse_buffer_is_loaded():
    ours, other = module_of(flow, True), module_of(flow, True)
    other.mixing = (ours.mixing.to_dense() * 2).to_sparse()
    assert other.mixing.to_dense().tolist() == [[0, 4, 0], [2, 0, 6]]
    other.load_state_dict(ours.state_dict())
    assert other.mixing.to_dense().tolist() == ours.mixing.to_dense().tolist()


@pytest.mark.parametrize("lib", [torch, flow])
def test_it_is_replaced_and_deleted(lib):
    module = module_of(lib, False)
    module.register_buffer("mixing", lib.eye(2).to_sparse(), persistent=False)
    assert module.mixing.shape == (2, 2)
    module.mixing = lib.zeros(2)  # a dense one
    assert [name for name, _ in module.named_buffers()] == ["mixing"]
    module.register_buffer("mixing", lib.eye(3).to_sparse())
    module.mixing = None
    assert module.mixing is None
    module.register_buffer("mixing", lib.eye(3).to_sparse())
    del module.mixing
    assert not hasattr(module, "mixing")
    assert not list(module.buffers())
    with pytest.raises(TypeError):
        module.register_buffer("mixing", 3)


def test_a_graph_reads_a_sparse_buffer():
    ours = module_of(flow, False)

    class Evaluated(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = ours

        def build(self, x):
            return self.model(x)

    x = flow.ones(4, 2)
    assert Evaluated()(x).tolist() == ours(x).tolist()
