"""Lazy layers become the layers that they stand for."""

import inspect

import pytest
import torch
from torch_oracle import is_new

import onefold as flow
from onefold import nn
from onefold.errors import OnefoldTypeError

CASES = {
    "LazyLinear": ((5,), (2, 3)),
    "LazyConv1d": ((4, 3), (2, 3, 8)),
    "LazyConv2d": ((4, 3), (2, 3, 8, 8)),
    "LazyConv3d": ((4, 3), (2, 3, 5, 5, 5)),
    "LazyConvTranspose1d": ((4, 3), (2, 3, 8)),
    "LazyConvTranspose2d": ((4, 3), (2, 3, 8, 8)),
    "LazyConvTranspose3d": ((4, 3), (2, 3, 5, 5, 5)),
    "LazyBatchNorm1d": ((), (4, 3)),
    "LazyBatchNorm2d": ((), (2, 3, 4, 4)),
    "LazyBatchNorm3d": ((), (2, 3, 4, 4, 4)),
    "LazyInstanceNorm1d": ((), (2, 3, 4)),
    "LazyInstanceNorm2d": ((), (2, 3, 4, 4)),
    "LazyInstanceNorm3d": ((), (2, 3, 4, 4, 4)),
}


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize("name", CASES)
def test_the_first_call_makes_the_layer(name):
    args, shape = CASES[name]
    theirs, ours = getattr(torch.nn, name)(*args), getattr(nn, name)(*args)
    x = torch.randn(shape)
    theirs(x)
    assert ours.has_uninitialized_params() and not list(ours.parameters())
    layer = ours.eval()
    layer.train()(flow.tensor(x))
    assert (type(ours).__name__, repr(ours)) == (type(theirs).__name__, repr(theirs))
    ours.load_state_dict(theirs.state_dict())
    theirs.eval()
    torch.testing.assert_close(ours.eval()(flow.tensor(x)).to_torch(), theirs(x))
    own = {"placement", "sbp"}
    wanted = inspect.signature(getattr(torch.nn, name)).parameters
    names = [n for n in inspect.signature(getattr(nn, name)).parameters if n not in own]
    assert [n for n in names if not is_new(n, wanted)] == list(wanted)


def test_parameters_are_where_the_input_is():
    ranks = flow.placement("cpu", [0, 1])
    layer = nn.LazyLinear(4)
    seen = []
    layer.register_forward_hook(lambda *args: seen.append(1))
    x = flow.ones(2, 3, placement=ranks, sbp=flow.sbp.split(0))
    layer(x)
    layer(x)
    assert layer.weight.placement == ranks and layer.weight.sbp == (flow.sbp.broadcast,)
    assert len(seen) == 2


def test_a_wrong_argument():
    with pytest.raises(OnefoldTypeError, match="LazyLinear: missing a required argument"):
        nn.LazyLinear()


def test_a_plain_attribute_can_be_deleted():
    layer = nn.Identity()
    layer.note = 1
    del layer.note
    assert not hasattr(layer, "note")
    with pytest.raises(AttributeError, match="note"):
        del layer.note
