"""Names of torch.jit, torch.fx and torch.onnx: a program that has them runs as it is written."""

import inspect

import pytest
import torch

import onefold
import onefold as flow
from onefold import nn
from onefold.jit import Final

PROGRAM = """
from typing import List, Optional

import onefold as torch
from onefold import nn
from onefold.jit.annotations import BroadcastingList2


@torch.jit.script
def swish(x):
    return x * torch.sigmoid(x)


@torch.jit.script_if_tracing
def clipped(x):
    return x.clamp(0, 1)


@torch.fx.wrap
def size(x):
    return x.shape[0]


class Gate(torch.jit.ScriptModule):
    scale: torch.jit.Final[float]

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.scale = torch.jit.Attribute(0.5, float).value

    @torch.jit.ignore
    def inner(self, x):
        return clipped(swish(self.linear(x)))

    @torch.jit.ignore(drop=True)
    def groups(self):
        return torch.jit.annotate(List[int], [])

    @torch.jit.unused
    def never(self):
        raise RuntimeError

    @torch.jit.export
    def twice(self, x):
        return x + x

    @torch.jit.script_method
    def forward(self, x):
        if torch.jit.is_scripting() or torch.jit.is_tracing() or torch.onnx.is_in_onnx_export():
            return self.never()
        with torch.jit.optimized_execution(True):
            return self.twice(self.inner(x)) * self.scale * size(x)


torch.manual_seed(0)
gate = torch.jit.script(Gate())
x = torch.arange(6.0).reshape(2, 3)
y = gate(x)
y.sum().backward()
"""


def test_decorators_give_back_what_they_decorate():
    names = {}
    exec(PROGRAM, names)
    gate, x = names["gate"], names["x"].to_torch()
    linear = torch.nn.Linear(3, 3)
    linear.load_state_dict({k: v.to_torch() for k, v in gate.linear.state_dict().items()})
    expected = torch.nn.functional.silu(linear(x)).clamp(0, 1) * 2
    torch.testing.assert_close(names["y"].to_torch(), expected)
    expected.sum().backward()
    torch.testing.assert_close(gate.linear.weight.grad.to_torch(), linear.weight.grad)
    assert gate.groups() == [] and isinstance(gate, nn.Module)


def test_a_scripted_function_is_captured():
    @flow.jit.script
    def half(x):
        return x / 2

    graph = nn.Graph.trace(half)
    assert graph(flow.ones(2)).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("name", flow.jit.__all__)
def test_parameters_are_those_of_torch(name):
    ours, theirs = getattr(flow.jit, name), getattr(torch.jit, name)
    if inspect.isfunction(theirs):
        assert [*inspect.signature(ours).parameters] == [*inspect.signature(theirs).parameters]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (3, int),
        ("a", int),
        (None, int | None),
        ([1, 2], list[int]),
        ([1, "a"], list[int]),
        ([1], tuple[int]),
        ((1, "a"), tuple[int, str]),
        ((1, 2), tuple[int, str]),
        ({"a": [1]}, dict[str, list[int]]),
        ({"a": ["b"]}, dict[str, list[int]]),
        ([1.0], (list[int], list[float])),
    ],
)
def test_isinstance_is_that_of_torch(value, kind):
    assert flow.jit.isinstance(value, kind) == torch.jit.isinstance(value, kind)


def test_tensors_in_containers():
    assert flow.jit.isinstance([flow.ones(1)], list[flow.Tensor])
    assert not flow.jit.isinstance([1], list[flow.Tensor])


def test_names_below_the_package():
    assert Final is flow.jit.Final and issubclass(flow.jit.TracerWarning, Warning)
    assert onefold.jit.annotate(int, 3) == 3
    with pytest.raises(AttributeError, match=r"jit\.trace is not offered.*flow\.compile"):
        _ = flow.jit.trace
    with pytest.raises(ImportError, match=r"symbolic_trace is not offered"):
        exec("from onefold.fx import symbolic_trace", {})
