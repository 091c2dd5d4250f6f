"""NumPy's names of arguments, `axis` and `keepdims`, as torch's functions take them."""

import inspect

import numpy as np
import pytest
import torch

import onefold as flow

X = torch.arange(12.0).reshape(3, 4) + 1
ONE = {"other": torch.tensor([[0]]), "rows": torch.tensor([0])}

CALLS = {
    "mean": lambda lib, x, **t: x.mean(axis=0),
    "sum of two": lambda lib, x, **t: lib.sum(x, axis=(0, 1), keepdims=True),
    "mean by keepdims": lambda lib, x, **t: x.mean([1], keepdims=True),
    "no axis": lambda lib, x, **t: x.sum(axis=None),
    "amax": lambda lib, x, **t: x.amax(axis=1, keepdims=True),
    "max": lambda lib, x, **t: x.max(axis=1).values,
    "softmax": lambda lib, x, **t: lib.softmax(x, axis=1),
    "log_softmax": lambda lib, x, **t: x.log_softmax(axis=0),
    "stack": lambda lib, x, **t: lib.stack([x, x], axis=1),
    "unsqueeze": lambda lib, x, **t: x.unsqueeze(axis=0),
    "chunk": lambda lib, x, **t: x.chunk(2, axis=1)[1],
    "narrow": lambda lib, x, **t: x.narrow(axis=1, start=1, length=2),
    "gather": lambda lib, x, other, **t: lib.gather(x, axis=0, index=other),
    "index_select": lambda lib, x, rows, **t: x.index_select(axis=0, index=rows),
    "in place": lambda lib, x, **t: x.clone().cumsum_(axis=0),
    "view in place": lambda lib, x, **t: x.clone().unsqueeze_(axis=0),
    "quantile": lambda lib, x, **t: lib.quantile(x, 0.5, axis=0, keepdims=True),
    "linalg.norm": lambda lib, x, **t: lib.linalg.norm(x, axis=1, keepdims=True),
    "fft": lambda lib, x, **t: lib.fft.fft(x, axis=0).real,
    "var_mean": lambda lib, x, **t: lib.var_mean(x, axis=0, keepdims=True)[0],
    "a 0-d tensor": lambda lib, x, rows, **t: x.sum(axis=rows[0]),
}


@pytest.mark.parametrize("name", CALLS)
def test_numpys_names_of_arguments_are_taken(world, name):
    expected = CALLS[name](torch, X, **ONE)
    given = {key: flow.from_torch(value) for key, value in ONE.items()}
    actual = CALLS[name](flow, flow.from_torch(X), **given)
    np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-6)


def test_both_names_of_an_argument_are_an_error(world):
    x = flow.ones(2, 3)
    with pytest.raises(TypeError, match="sum: got both dim=0 and axis=1"):
        x.sum(0, axis=1)
    with pytest.raises(TypeError, match="softmax: got both dim=0 and axis=0"):
        flow.softmax(x, 0, axis=0)


def test_errors_of_missing_and_unknown_arguments_are_those_of_python(world):
    x = flow.ones(2, 3)
    with pytest.raises(TypeError, match=r"softmax.. missing 1 required positional argument: 'dim'"):
        x.softmax()
    with pytest.raises(TypeError, match=r"narrow.. missing 1 required .* 'length'"):
        x.narrow(0, 1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'axes'"):
        x.sum(axes=1)


def test_signatures_have_the_names_of_torch(world):
    assert list(inspect.signature(flow.mean).parameters)[:3] == ["input", "dim", "keepdim"]
