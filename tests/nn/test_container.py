"""Containers against torch's: names, indexing, slicing, appending."""

from collections import OrderedDict

import pytest
import torch

import onefold as flow
from onefold.errors import OnefoldIndexError

LIBS = (flow, torch)


def test_sequential(world):
    shapes = []
    for lib in LIBS:
        model = lib.nn.Sequential(lib.nn.Linear(4, 3), lib.nn.ReLU(), lib.nn.Linear(3, 2))
        model.append(lib.nn.Linear(2, 5))
        assert len(model) == 4 and model[-1].out_features == 5
        assert isinstance(model[1:3], lib.nn.Sequential) and len(model[1:3]) == 2
        assert [type(m).__name__ for m in model] == ["Linear", "ReLU", "Linear", "Linear"]
        shapes.append(
            (model(lib.ones(6, 4)).shape, list(model.state_dict()), list(model[2:].state_dict()))
        )
    assert shapes[0] == shapes[1]


def test_sequential_with_names(world):
    for lib in LIBS:
        model = lib.nn.Sequential(OrderedDict(a=lib.nn.Linear(2, 2), b=lib.nn.ReLU()))
        assert list(model.state_dict()) == ["a.weight", "a.bias"] and model.a is model[0]


def test_module_list(world):
    for lib in LIBS:
        modules = lib.nn.ModuleList([lib.nn.Linear(2, 2)])
        modules.append(lib.nn.ReLU()).extend([lib.nn.Linear(2, 3)])
        assert len(modules) == 3 and len(modules[1:]) == 2
        modules[1] = lib.nn.Linear(5, 6)
        assert list(modules.state_dict())[2] == "1.weight" and modules[-1].out_features == 3
        with pytest.raises(NotImplementedError):
            modules(1)


def test_module_dict(world):
    for lib in LIBS:
        modules = lib.nn.ModuleDict({"a": lib.nn.Linear(2, 2)})
        modules["b"] = lib.nn.ReLU()
        assert "a" in modules and len(modules) == 2 and list(modules) == ["a", "b"]
        assert list(modules.keys()) == [k for k, _ in modules.items()]
        assert next(iter(modules.values())) is modules["a"]
        modules["a"] = lib.nn.Linear(2, 7)
        assert list(modules) == ["a", "b"] and modules["a"].out_features == 7


def test_parameter_list(world):
    for lib in LIBS:
        params = lib.nn.ParameterList([lib.nn.Parameter(lib.ones(2))])
        params.append(lib.nn.Parameter(lib.ones(3)))
        assert len(params) == 2 and [len(p) for p in params] == [2, 3]
        assert list(params.state_dict()) == ["0", "1"] and params[-1].shape == (3,)


@pytest.mark.parametrize("kind", ["Sequential", "ModuleList", "ParameterList"])
def test_an_index_out_of_range(kind, world):
    with pytest.raises(OnefoldIndexError, match="index 3 is out of range"):
        getattr(flow.nn, kind)()[3]
