"""Programs derive layers from the bases that torch keeps private."""

import numpy as np
import pytest
import torch

import onefold as flow
from onefold import nn
from onefold.errors import OnefoldNotImplementedError, OnefoldValueError


def programs(lib):
    """Classes as programs derive them from the private bases, each with its input."""
    modules, functional = lib.nn.modules, lib.nn.functional
    pair = modules.utils._pair

    class Scaled(modules.conv._ConvNd):
        def __init__(self, inputs, outputs, size, padding):
            args = pair(size), pair(2), pair(padding), pair(1), False, pair(0), 1, True
            super().__init__(inputs, outputs, *args, "reflect")

        def forward(self, x):
            x = functional.pad(x, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            return functional.conv2d(x, 2 * self.weight, self.bias, self.stride)

    class Any(modules.batchnorm._BatchNorm):
        def _check_input_dim(self, input):
            if input.dim() < 2:
                raise ValueError(input.dim())

    class Tilted(modules.loss._Loss):
        def __init__(self, size_average=None, reduce=None, reduction="mean"):
            super().__init__(size_average, reduce, reduction)

        def forward(self, x):
            return functional.l1_loss(x, lib.ones_like(x), reduction=self.reduction)

    class Weighted(modules.loss._WeightedLoss):
        def forward(self, x):
            return functional.cross_entropy(x, x.argmax(1), self.weight, reduction=self.reduction)

    class Kept(modules.dropout._DropoutNd):
        def forward(self, x):
            return x * (1 - self.p)

    weight = lib.tensor([1.0, 2.0, 3.0])
    return {
        "conv": (lambda: Scaled(3, 2, 3, 1), (2, 3, 5, 5)),
        "batch norm": (lambda: Any(3), (4, 3, 2, 2)),
        "loss": (lambda: Tilted(reduction="sum"), (4, 3)),
        "weighted": (lambda: Weighted(weight, reduction="sum"), (4, 3)),
        "dropout": (lambda: Kept(0.25), (4, 3)),
    }


@pytest.mark.parametrize("name", programs(torch))
def test_programs_derive_from_the_bases(name):
    make, shape = programs(torch)[name]
    theirs, x = make(), torch.linspace(-1.0, 2.0, int(np.prod(shape))).reshape(shape)
    ours = programs(flow)[name][0]()
    ours.load_state_dict(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    np.testing.assert_allclose(
        ours(flow.from_torch(x)).detach().numpy(), theirs(x).detach().numpy(), 1e-5, 1e-6
    )


def test_errors():
    with pytest.raises(OnefoldNotImplementedError, match=r"define _check_input_dim"):
        nn.modules.batchnorm._BatchNorm(3)(flow.ones(2, 3))
    with pytest.raises(OnefoldValueError, match="between 0 and 1, but got 2"):
        nn.modules.dropout._DropoutNd(2)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = nn.modules.nothing


def test_tensors_in_one_buffer():
    """As programs send gradients: in one buffer, and back by views of it."""

    def reduced(lib):
        tensors = [lib.ones(2, 3), 2 * lib.ones(4), lib.ones(1, dtype=lib.float64)]
        lists = list(lib._utils._take_tensors(tensors, 30))
        flat = lib._utils._flatten_dense_tensors(tensors[:2])
        parts = lib._utils._unflatten_dense_tensors(flat, tensors[:2])
        flat.mul_(3)
        return [[list(x.shape) for x in each] for each in lists], [x.tolist() for x in parts]

    assert reduced(flow) == reduced(torch)


def test_trees_have_tensors_as_leaves():
    tree_map = flow.utils._pytree.tree_map
    found = tree_map(lambda x: x + 1, {"a": [flow.ones(2), 3], "b": (flow.zeros(1),)})
    assert found["a"][1] == 4 and found["b"][0].tolist() == [1.0]


def test_algorithms_of_attention():
    """Programs may name them; all compute the same."""
    for lib in (torch, flow):
        backend, kernel = lib.nn.attention.SDPBackend, lib.nn.attention.sdpa_kernel
        with kernel([backend.MATH, backend.FLASH_ATTENTION], set_priority=True):
            x = lib.ones(1, 2, 3, 4)
            assert lib.nn.functional.scaled_dot_product_attention(x, x, x).sum().item() == 24
        with kernel(backend.MATH):
            pass
    with (
        pytest.raises(TypeError, match="list of SDPBackend"),
        flow.nn.attention.sdpa_kernel("math"),
    ):
        pass
    with pytest.raises(ValueError, match="at least one"), flow.nn.attention.sdpa_kernel([]):
        pass


def test_back_ends_of_processes():
    for lib in (torch, flow):
        assert lib.distributed.is_backend_available("gloo")
        assert not lib.distributed.is_backend_available("none")
    assert flow.distributed.get_node_local_rank() == 0
