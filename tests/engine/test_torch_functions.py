"""Functions of torch and torch.nn.functional called on our tensors run our ops of their names."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import onefold as flow

X = np.linspace(-2, 2, 24).reshape(4, 6)
W = np.linspace(-1, 1, 18).reshape(3, 6)
LABELS = np.array([0, 2, 1, 1])

CALLS = [
    (torch.add, (X, X), {}),
    (torch.sum, (X, 1), {}),
    (torch.softmax, (X, 1), {}),
    (torch.cat, ([X, X],), {}),
    (torch.transpose, (X, 0, 1), {}),
    (torch.where, (X > 0, X, X), {}),
    (F.relu, (X,), {}),
    (F.gelu, (X,), {"approximate": "tanh"}),
    (F.softmax, (X,), {"dim": 1}),
    (F.log_softmax, (X,), {"dim": -1}),
    (F.linear, (X, W), {}),
    (F.layer_norm, (X, (6,)), {}),
    (F.cross_entropy, (X, LABELS), {}),
    (F.mse_loss, (X, X), {}),
    (F.embedding, (LABELS, W), {}),
    (F.pad, (X, (1, 1)), {}),
    (F.dropout, (X,), {"p": 0.0}),
    (F.leaky_relu, (X,), {"negative_slope": 0.2}),
]


def converted(value, make):
    if isinstance(value, np.ndarray):
        return make(value)
    return [make(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("index", range(len(CALLS)))
def test_the_same_as_on_torch_tensors(index, world):
    function, args, options = CALLS[index]
    p = flow.placement("cpu", [0, 1])

    def ours(value):
        return flow.tensor(value, placement=p, sbp=flow.sbp.broadcast)

    found = function(*[converted(arg, ours) for arg in args], **options)
    wanted = function(*[converted(arg, torch.from_numpy) for arg in args], **options)
    assert isinstance(found, flow.Tensor)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12)


def test_unknown_functions_and_options_are_refused(world):
    x = flow.ones(3)
    with pytest.raises(flow.errors.OnefoldTypeError, match="onefold has no op named 'svd_lowrank'"):
        torch.svd_lowrank(x.reshape(3, 1))
    with pytest.raises(TypeError, match="inplace"):
        F.relu(x, inplace=True)
