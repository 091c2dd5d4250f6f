"""flow.overrides has torch's functions for programs whose functions other classes override."""

import pytest
import torch
from torch import overrides as theirs

import onefold as flow
from onefold import overrides as ours
from onefold.errors import OnefoldTypeError


class Base:
    """What torch and Onefold find by its method."""

    calls: list

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls = [cls.__name__, {kind.__name__ for kind in types}, args, kwargs]
        return cls.calls


class Derived(Base):
    """Goes before its base."""


class Other:
    """Leaves it to others."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


class Tagged(torch.Tensor):
    """A subclass of torch's tensor, whose method is torch's."""


def function(x, y=None):
    if ours.has_torch_function((x, y)):
        return ours.handle_torch_function(function, (x, y), x, y=y)
    return x


def of_torch(x, y=None):
    if theirs.has_torch_function((x, y)):
        return theirs.handle_torch_function(of_torch, (x, y), x, y=y)
    return x


def test_tensors_are_like_tensors(world):
    for value in (flow.ones(2), flow.nn.Parameter(flow.ones(2)), torch.ones(2), Base(), 3, [1.0]):
        assert ours.is_tensor_like(value) == theirs.is_tensor_like(value)
    assert not ours.has_torch_function((flow.ones(2), 3, None))
    assert function(flow.ones(2)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("kinds", [(Base, None), (Base, Derived), (Derived, Base), (Other, Base)])
def test_classes_are_asked_in_the_order_of_torch(kinds):
    args = [None if kind is None else kind() for kind in kinds]
    assert function(*args) == of_torch(*args)


@pytest.mark.parametrize(
    "value",
    [torch.ones(2), torch.nn.Parameter(torch.ones(2)), torch.ones(2).as_subclass(Tagged), 3],
    ids=lambda value: type(value).__name__,
)
def test_tensors_of_torch_override_what_they_do_in_torch(value):
    assert ours.has_torch_function((value,)) == theirs.has_torch_function((value,))
    mine, other = function(value), of_torch(value)
    assert type(mine) is type(other)
    assert mine is other or torch.equal(mine, other)


def test_errors_and_decorators():
    with pytest.raises(OnefoldTypeError, match=r"no implementation found for 'function'.*Other"):
        function(Other())
    wrapped = ours.wrap_torch_function(lambda x: (x,))(lambda x: x + 1)
    assert wrapped(2) == 3 and wrapped(Base())[0] == "Base"
    with pytest.raises(AttributeError, match=r"profiler"):
        ours.TorchFunctionMode  # noqa: B018
