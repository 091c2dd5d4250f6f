"""Variable is a tensor of the same value and memory, as in torch."""

import pytest
import torch

import onefold as flow


@pytest.mark.parametrize("lib", [torch, flow])
def test_variable(lib):
    variable = lib.autograd.Variable
    x = lib.ones(2)
    y = variable(x, requires_grad=True)
    assert y.is_leaf and y.requires_grad and not x.requires_grad and type(y) is lib.Tensor
    y.data[0] = 5
    assert x.tolist() == [5, 1]
    computed = variable(y * 2)
    assert computed.grad_fn is None and not computed.requires_grad
    assert type(variable(lib.nn.Parameter(x))) is lib.Tensor
    assert isinstance(x, variable) and not isinstance(2, variable)
    with pytest.raises(TypeError, match="Variable data has to be a"):
        variable([1.0])
    with pytest.raises(RuntimeError, match="floating point"):
        variable(lib.ones(2, dtype=lib.int64), requires_grad=True)
