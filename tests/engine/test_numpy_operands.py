"""Operators between tensors and numbers, arrays or other objects, against torch's."""

import operator

import numpy as np
import pytest
import torch

import onefold as flow
from onefold.errors import MixedTensorsError, OnefoldRuntimeError, OnefoldTypeError

NUMBERS = {
    "float64": np.float64(2.5),
    "float32": np.float32(2.5),
    "int64": np.int64(3),
    "uint8": np.uint8(3),
    "bool": np.bool_(True),
    "complex128": np.complex128(2 + 1j),
}
ARRAYS = {
    "float64": np.array([1.5, 2.5]),
    "float32": np.array([1.5, 2.0], np.float32),
    "int64": np.array([1, 2]),
    "0-d": np.array(3),
}
TENSORS = {
    "float32": ([1.5, 2.0], False),
    "int64": ([1, 2], False),
    "bool": ([True, False], False),
    "0-d": (2.0, False),
    "requires grad": ([1.5, 2.0], True),
}
ARITHMETIC = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"]
COMPARISONS = ["lt", "le", "gt", "ge", "eq", "ne"]
BITS = ["and_", "or_", "xor", "lshift", "rshift"]


def outcome(module, function, values, other, left):
    """Of an operator: (type, dtype, value, whether it requires grad), or that it raises."""
    data, requires_grad = values
    x = module.tensor(data, requires_grad=requires_grad)
    try:
        y = function(other, x) if left else function(x, other)
    except (TypeError, RuntimeError):
        return "raises"
    assert type(y) is module.Tensor
    # floor_divide has no gradient here, where torch raises one step later.
    differentiable = y.requires_grad and function is not operator.floordiv
    return y.dtype, repr(y.detach().tolist()), differentiable  # in which nan equals nan


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("name", [*ARITHMETIC, *COMPARISONS, *BITS, "matmul"])
@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_of_numpy_count_as_pythons(kind, name, left):
    function = getattr(operator, name)
    for values in TENSORS.values():
        found = outcome(flow, function, values, NUMBERS[kind], left)
        assert found == outcome(torch, function, values, NUMBERS[kind], left), values


def test_the_gradient_flows_past_a_number_of_numpy():
    for module in (torch, flow):
        w = module.tensor([1.0, 2.0], requires_grad=True)
        (np.float64(0.5) * (w * w).sum() + (np.sqrt(2.0) - np.float32(1.0) / w).sum()).backward()
        assert w.grad.tolist() == [2.0, 2.25]


@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")  # of torch's tensors
@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize("kind", ARRAYS)
def test_an_array_on_the_right_gives_torchs_dtype(kind, name):
    function = getattr(operator, name)
    for values in list(TENSORS.values())[:4]:
        x, y = (module.tensor(values[0]) for module in (flow, torch))
        found, wanted = function(x, ARRAYS[kind]), function(y, ARRAYS[kind])
        torch.testing.assert_close(found.to_torch(), wanted, msg=lambda m, v=values: f"{v}: {m}")


def test_arrays_on_either_side_keep_the_gradient():
    w = flow.tensor([1.0, 2.0], requires_grad=True)
    (np.array([3.0, 4.0]) * w + w / np.array([1, 2])).sum().backward()
    assert w.grad.tolist() == [4.0, 4.5] and w.grad.dtype is torch.float32
    assert (np.array([1.0, 3.0]) == w).tolist() == [True, False]
    assert (flow.ones(2, dtype=flow.bfloat16) + np.ones(2, np.float32)).dtype is torch.float32


def test_arrays_that_are_no_operands():
    x = flow.ones(2)
    with pytest.raises(OnefoldTypeError, match="argument 1 must be an onefold Tensor or a number"):
        x + np.array([1, "x"], object)
    with pytest.raises(OnefoldTypeError, match=r"Convert it with onefold\.from_numpy\(x\)"):
        x @ np.ones(2)
    spread = flow.ones(2, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.broadcast)
    with pytest.raises((OnefoldTypeError, MixedTensorsError), match="ndarray"):
        spread + np.ones(2)


def test_equality_with_other_objects_is_pythons():
    for module in (torch, flow):
        x = module.tensor([1.0])
        for other in (None, "a", [1.0], (1.0,), object()):
            assert (x == other) is False and (x != other) is True
            assert (other == x) is False and (other != x) is True
        assert x is not None and x not in (None, "a")
        with pytest.raises(TypeError):
            module.eq(x, None)
    with pytest.raises(OnefoldTypeError, match="onefold Tensor or a number"):
        flow.ones(1) == torch.ones(1)  # noqa: B015


def test_membership():
    for module in (torch, flow):
        x = module.tensor([[1.0, 2.0], [3.0, 4.0]])
        assert 3 in x and 2.0 in x and np.float64(4) in x and module.tensor(1.0) in x
        assert 5.0 not in x and module.tensor([9.0, 9.0]) not in x
        with pytest.raises(RuntimeError):
            _ = None in x
    with pytest.raises(OnefoldRuntimeError, match=r"for a number or Tensor .* but got str"):
        _ = "a" in flow.ones(2)


def test_an_array_of_a_tensor_that_requires_grad_is_refused():
    for module in (torch, flow):
        w = module.tensor([1.0], requires_grad=True)
        for made in (w, w * 2):
            with pytest.raises(RuntimeError, match=r"detach\(\)\.numpy\(\)"):
                np.asarray(made)
            with pytest.raises(RuntimeError, match=r"detach\(\)\.numpy\(\)"):
                np.sqrt(made)
        assert np.asarray(w.detach()).tolist() == [1.0]


@pytest.mark.filterwarnings("ignore:__array")  # numpy's, of torch's own method
@pytest.mark.parametrize("name", ["sqrt", "exp", "abs", "isnan", "floor"])
def test_functions_of_numpy(name):
    """Of a local tensor they give a tensor, of a global one an array."""
    function = getattr(np, name)
    theirs, ours = (function(lib.tensor([1.5, 4.0])) for lib in (torch, flow))
    assert type(theirs) is torch.Tensor and type(ours) is flow.Tensor
    assert ours.tolist() == theirs.tolist()
    x = flow.ones(2, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.split(0))
    assert type(np.maximum(x, 2)) is np.ndarray
    assert np.maximum(flow.ones(2), np.array([0, 3])).tolist() == [1, 3]
