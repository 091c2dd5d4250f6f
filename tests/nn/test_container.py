"""Containers against torch's: names, indexing, slicing, appending."""

from collections import OrderedDict
from functools import partial

import pytest
import torch

import onefold as flow
from onefold.errors import OnefoldIndexError, OnefoldTypeError, OnefoldValueError

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


def sequential(lib, modules):
    return lib.nn.Sequential(*modules)


def test_lists_change(world):
    """Every call gives the same kinds of modules, under the same names, as in torch."""
    found = []
    for lib in LIBS:
        linear, relu, tanh = lib.nn.Linear(1, 1), lib.nn.ReLU(), lib.nn.Tanh()
        for kind in (lib.nn.ModuleList, partial(sequential, lib)):
            modules = kind([linear, relu])
            modules.insert(1, tanh)
            modules += kind([relu, lib.nn.GELU()])
            modules.extend([tanh])
            assert modules.pop(-2).__class__.__name__ == "GELU"
            del modules[0]
            both = modules + kind([linear])
            del modules[1:]
            found.append((repr(modules), repr(both)))
        named = lib.nn.Sequential(OrderedDict(a=linear, b=relu, c=tanh))
        named.pop(1)
        named[0] = tanh
        found.append((repr(named), repr(lib.nn.Sequential(relu, tanh) * 2)))
        found.append(repr(2 * lib.nn.Sequential(relu)))
    assert found[: len(found) // 2] == found[len(found) // 2 :]
    with pytest.raises(OnefoldTypeError, match="is not a Module subclass"):
        flow.nn.ModuleList().insert(0, 3)
    with pytest.raises(OnefoldTypeError, match="should be called with an iterable"):
        flow.nn.Sequential().extend(3)
    with pytest.raises(OnefoldValueError, match="1 or more times"):
        flow.nn.Sequential(flow.nn.ReLU()) * 0


def test_dicts_change(world):
    found = []
    for lib in LIBS:
        modules = lib.nn.ModuleDict([("b", lib.nn.ReLU())])
        modules.update({"a": lib.nn.Tanh(), "b": lib.nn.GELU()})
        modules.update([("c", lib.nn.ReLU())])
        popped = modules.pop("a")
        del modules["c"]
        found.append((repr(modules), repr(popped)))
        modules.clear()
        assert len(modules) == 0
    assert found[0] == found[1]
    with pytest.raises(OnefoldValueError, match="element 0 has length 1, where 2 is required"):
        flow.nn.ModuleDict([["a"]])


def test_parameters_that_are_no_parameters(world):
    for lib in LIBS:
        params = lib.nn.ParameterList([lib.ones(2), 3])
        params += [lib.ones(1)]
        params[0] = lib.ones(4)
        assert isinstance(params[0], lib.nn.Parameter) and params[1] == 3 and len(params) == 3
        assert list(params.state_dict()) == ["0", "2"] and len(params[1:]) == 2
        with pytest.raises(RuntimeError, match="should not be called"):
            params()
    text = repr(params)  # torch's
    ours = flow.nn.ParameterList([flow.ones(4), 3, flow.ones(1)])
    assert repr(ours) == text
    with pytest.raises(OnefoldTypeError, match="should be called with an iterable"):
        ours.extend(flow.ones(2))


def test_parameter_dict(world):
    for lib in LIBS:
        params = lib.nn.ParameterDict({"b": lib.ones(2)})
        params["a"] = lib.nn.Parameter(lib.ones(3))
        params.update([("c", lib.ones(1))])
        assert list(params) == ["b", "a", "c"] == list(params.state_dict())
        assert list(reversed(params)) == ["c", "a", "b"]
        assert len(params) == 3 and "a" in params and isinstance(params["c"], lib.nn.Parameter)
        assert list(params.keys()) == [key for key, _ in params.items()]
        assert next(iter(params.values())) is params["b"] is params.b
        other = params.copy()
        assert other["a"] is params["a"]
        assert params.pop("a").shape == (3,) and params.popitem()[0] == "c"
        assert params.get("a") is None and params.setdefault("d", lib.ones(2)).shape == (2,)
        assert sorted(params | other) == ["a", "b", "c", "d"]
        assert sorted({"z": lib.ones(1)} | params) == ["b", "d", "z"]
        params |= other
        assert sorted(params.fromkeys(["x", "y"], lib.ones(1))) == ["x", "y"]
        del params["d"]
        params.clear()
        assert len(params) == 0 and list(params.parameters()) == []
        with pytest.raises(TypeError, match="cannot be used as a key"):
            params[3] = lib.ones(2)
        with pytest.raises(RuntimeError, match="should not be called"):
            params(1)
    with pytest.raises(KeyError, match="missing"):
        flow.nn.ParameterDict()["missing"]


def test_container_is_deprecated(world):
    for lib in LIBS:
        with pytest.warns(FutureWarning, match=r"`nn\.Container` is deprecated"):
            module = lib.nn.Container(a=lib.nn.Linear(2, 2))
        assert list(module.state_dict()) == ["a.weight", "a.bias"]


@pytest.mark.parametrize("kind", ["Sequential", "ModuleList", "ParameterList"])
def test_an_index_out_of_range(kind, world):
    with pytest.raises(OnefoldIndexError, match="index 3 is out of range"):
        getattr(flow.nn, kind)()[3]


def test_a_parameter_dict_checks_new_names():
    held = flow.nn.ParameterDict({"w": flow.nn.Parameter(flow.ones(1))})
    held["v"] = flow.nn.Parameter(flow.zeros(2))
    assert list(held) == ["w", "v"]
    with pytest.raises(ValueError, match="non-empty"):
        held[""] = flow.nn.Parameter(flow.zeros(2))


def test_a_module_dict_takes_another(world):
    for lib in LIBS:
        first = lib.nn.ModuleDict({"b": lib.nn.ReLU(), "ab": lib.nn.Tanh()})
        again = lib.nn.ModuleDict(first)
        again.update(lib.nn.ModuleDict({"c": lib.nn.Tanh(), "b": lib.nn.Tanh()}))
        assert [*again] == ["b", "ab", "c"] and again["ab"] is first["ab"]


def test_parameters_of_a_mapping_are_numbered_as_in_torch(world):
    def names(lib):
        """Of a dict, pairs, an ordered dict and another container."""
        given = {name: lib.ones(1) for name in "cab"}
        found = lib.nn.ParameterDict(given)
        forms = (given, list(given.items()), OrderedDict(given))
        made = [found, *map(lib.nn.ParameterDict, forms), lib.nn.ParameterDict({"d": given["a"]})]
        made[-1].update(made[2])
        return [[name for name, _ in each.named_parameters()] for each in made]

    assert names(flow) == names(torch)


def test_an_insertion_out_of_range(world):
    for lib in LIBS:
        made = lib.nn.Sequential(lib.nn.ReLU(), lib.nn.Tanh())
        for index in (3, -3):
            with pytest.raises(IndexError, match=f"Index out of range: {index}"):
                made.insert(index, lib.nn.ReLU())
        made.insert(-1, lib.nn.Sigmoid())
        assert [type(each).__name__ for each in made] == ["ReLU", "Sigmoid", "Tanh"]


def test_a_missing_key_is_a_key_error():
    """As documented, and as in torch's ModuleDict."""
    with pytest.raises(KeyError, match="'a'"):
        flow.nn.ModuleDict().pop("a")
    with pytest.raises(KeyError, match="'a'"):
        flow.nn.ParameterDict().pop("a")
    with pytest.raises(KeyError, match="empty"):
        flow.nn.ParameterDict().popitem()
