"""Every attribute of a tensor is there, and the transposes are torch's, errors too."""

import warnings

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.engine.methods import INPLACE, METHODS
from onefold.engine.names import all_names

P2 = flow.placement("cpu", [0, 1])
LAYOUTS = {
    "local": {},
    "broadcast": {"placement": P2, "sbp": flow.sbp.broadcast},
    "split": {"placement": P2, "sbp": flow.sbp.split(0)},
}
PARTS = ("T", "mT", "H", "mH")


def result(x, name):
    """The values, or what the error says."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of transposes of vectors and 0-d tensors
        try:
            found = getattr(x, name)
            found = found() if callable(found) else found
        except RuntimeError as error:
            return str(error)
    return found.resolve_conj().numpy() if isinstance(found, torch.Tensor) else found.numpy()


SHAPES = [(), (4,), (4, 6), (4, 3, 2), (2, 4, 3, 2)]
# A 0-d tensor has no dim to split.
LAID_OUT = [(layout, shape) for layout in LAYOUTS for shape in SHAPES[layout == "split" :]]


@pytest.mark.parametrize(("layout", "shape"), LAID_OUT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_transposes_are_as_in_torch(world, layout, dtype, shape):
    value = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(3))
    x = flow.tensor(value, **LAYOUTS[layout])
    for name in (*PARTS, "adjoint"):
        found, wanted = result(x, name), result(value, name)
        if isinstance(wanted, str):
            assert found == wanted
        else:
            np.testing.assert_array_equal(found, wanted, strict=True)


@pytest.mark.parametrize("name", PARTS)
def test_gradients_of_transposes(world, name):
    value = torch.arange(6.0).reshape(2, 3)
    x = flow.tensor(value, placement=P2, sbp=flow.sbp.split(0), requires_grad=True)
    (getattr(x, name) * flow.tensor(value.T, placement=P2, sbp=flow.sbp.broadcast)).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), value.numpy())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_attribute_is_there_or_says_why_not(world, layout):
    """An attribute that names no op would raise AttributeError, as if torch had none."""
    x = flow.ones(2, 2, **LAYOUTS[layout])
    missing = []
    private = {
        "_base",
        "_frozen_leaf",
        "_low_copy",
        "_step",
        "_view",
        "_views",
    }  # where they are set
    for name in set(dir(flow.Tensor)) - private:
        try:
            getattr(x, name)
        except AttributeError as error:
            if "make it global" not in str(error):  # else `hasattr` tells global tensors
                missing.append((name, str(error)))
        except flow.OnefoldError:
            pass  # of what only global or only local tensors have
    assert missing == []


def test_every_method_has_its_op():
    assert {*METHODS, *INPLACE} - all_names().keys() == set()
