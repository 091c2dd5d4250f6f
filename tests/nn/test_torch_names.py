"""Every public name of torch.nn, its functional, init and utils is there, with torch's parameters.

What is left out raises an error that says what to use: nn/unsupported_names.py is that list.
"""

import inspect
import operator
import re
from importlib import import_module

import pytest
import torch
from torch_oracle import is_new

import onefold as flow
from onefold.errors import OnefoldRuntimeError
from onefold.nn import unsupported_names

nn, F, init, utils = flow.nn, flow.nn.functional, flow.nn.init, flow.nn.utils

# Functions and classes with the parameters of torch's in another order or form, and why.
OTHER_FORMS = {
    "CrossEntropyLoss": "OneFlow's order; what torch deprecates comes last and by name",
    "MSELoss": "OneFlow's order",
    "NLLLoss": "OneFlow's order",
    "NLLLoss2d": "OneFlow's order",
    "Module": "torch takes any arguments and ignores or refuses them",
    "Parameter": "torch makes an empty tensor when there is no data",
    "Buffer": "the same",
    "clip_grad_norm_": "OneFlow's order, with its argument `fused`",
    "scaled_dot_product_attention": "`window`, by name, comes after torch's parameters",
    "hardshrink": "torch takes `out`, and does not document it",
    "one_hot": "torch documents `tensor`, and takes `input`",
}
OWN = {"placement", "sbp", "data_format"}  # by name, after torch's
SUBMODULES = (
    "clip_grad", "convert_parameters", "fusion", "init", "memory_format", "parametrizations",
    "parametrize", "prune", "rnn", "stateless",
)  # fmt: skip


def public(module):
    """The functions and classes that a module of torch defines for users."""
    for name, value in vars(module).items():
        where = getattr(value, "__module__", None) or ""
        defined = where.startswith("torch.nn") or (not where and name.islower())
        if name[0] != "_" and callable(value) and defined:
            yield name, value


def names_of(module):
    """The public names of torch.nn.functional: its builtins are of torch._C and documented here."""
    for name, value in vars(module).items():
        builtin = inspect.isbuiltin(value) and (value.__doc__ or "").strip().startswith(name)
        if name[0] != "_" and (builtin or getattr(value, "__module__", "") == module.__name__):
            yield name, value


HELPERS = {  # that torch's modules define for themselves
    "assert_int_or_pair", "boolean_dispatch", "reproducibility_notes", "sparse_support_notes",
    "tf32_notes", "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "ConvT",
    "LinearT", "NamedMemberAccessor", "PackedSequence_", "bind", "T_module",
}  # fmt: skip
TABLES = {
    "nn": (nn, dict(public(torch.nn))),
    "functional": (F, dict(names_of(torch.nn.functional))),
    "init": (init, dict(public(torch.nn.init))),
    "utils": (utils, dict(public(torch.nn.utils))),
}
for _name in SUBMODULES:
    _theirs = import_module(f"torch.nn.utils.{_name}")
    _own = {k: v for k, v in public(_theirs) if v.__module__.startswith("torch.nn.utils")}
    TABLES[f"utils.{_name}"] = getattr(utils, _name), _own
EVERY = [
    (table, name) for table, (_, theirs) in TABLES.items() for name in theirs if name not in HELPERS
]


def documented(function):
    """The signature in the documentation of a function that is not written in Python."""
    first = (function.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
    found = re.match(r"\w+(\(.*?\)) ->", first)
    if found is None:
        return None
    scope = {}
    exec(f"def f{found[1]}: pass", {"torch": torch}, scope)
    return inspect.signature(scope["f"])


def signature(value):
    try:
        return inspect.signature(value)
    except (TypeError, ValueError):
        return documented(value)


def shown(parameter):
    """The name, the kind and the default of a parameter; of functions as defaults the name."""
    default = parameter.default
    if parameter.default is parameter.empty:
        default = "required"
    elif callable(default):
        default = default.__name__
    return parameter.name, parameter.kind, default


def test_nothing_is_overlooked():
    """The tables hold what users know, so that the tests below test something."""
    count = {name: len(theirs) for name, (_, theirs) in TABLES.items()}
    assert count["nn"] > 150 and count["functional"] > 110 and count["init"] > 20
    for table, name in (
        ("nn", "Linear"), ("functional", "relu"), ("functional", "conv2d"), ("init", "normal_"),
        ("utils", "clip_grad_norm_"), ("utils.prune", "remove"), ("functional", "relu_"),
        ("utils.parametrize", "cached"),
    ):  # fmt: skip
        assert name in TABLES[table][1]


@pytest.mark.parametrize(("table", "name"), EVERY)
def test_every_name_is_there(table, name):
    module, _ = TABLES[table]
    left_out = {"nn": unsupported_names.LAYERS, "functional": unsupported_names.FUNCTIONS}
    if name in left_out.get(table, ()):
        with pytest.raises(OnefoldRuntimeError, match=f"{name} is not offered: "):
            getattr(module, name)
        assert not hasattr(module, name)
    else:
        assert callable(getattr(module, name))


def forms(table, name):
    """The parameters here and in torch, where both are known."""
    module, theirs = TABLES[table]
    wanted = signature(theirs[name])
    if not hasattr(module, name) or wanted is None or "args" in wanted.parameters:
        return [], []
    own = inspect.signature(getattr(module, name)).parameters.values()
    theirs_too = wanted.parameters
    own = [each for each in own if each.name not in OWN and not is_new(each.name, theirs_too)]
    found = [shown(each) for each in own]
    right = [shown(each) for each in wanted.parameters.values()]
    if inspect.isbuiltin(theirs[name]):  # the documentation does not tell the kinds
        found, right = ([each[::2] for each in form] for form in (found, right))
    return found, right


@pytest.mark.parametrize(("table", "name"), EVERY)
def test_parameters_are_torchs(table, name):
    """The same names in the same order with the same defaults."""
    found, right = forms(table, name)
    if name not in OTHER_FORMS:
        assert found == right


def test_other_forms_are_other():
    different = {name for table, name in EVERY if operator.ne(*forms(table, name))}
    by_name = {"Module", "NLLLoss2d"}  # of which torch shows no parameters
    assert set(OTHER_FORMS) == different | by_name


@pytest.mark.parametrize("name", sorted(unsupported_names.LAYERS))
def test_what_is_left_out_says_what_to_use(name):
    with pytest.raises(OnefoldRuntimeError, match=rf"onefold\.nn\.{name} is not offered: \w+"):
        getattr(nn, name)


def test_oneflows_proxies_say_what_to_use():
    for name in ("Proxy", "ProxyModule", "ProxyTensor"):
        with pytest.raises(OnefoldRuntimeError, match="test them by their own classes"):
            getattr(nn.graph, name)
    with pytest.raises(AttributeError, match="has no attribute 'Missing'"):
        _ = nn.Missing


def test_types_of_arguments():
    for name in vars(torch.nn.common_types):
        if name.endswith("_t"):
            assert hasattr(nn.common_types, name), name


def test_the_names_of_old_in_init(world):
    with pytest.warns(FutureWarning, match=r"`nn\.init\.constant_`"):
        found = init.constant(flow.zeros(2), 3.0)
    assert found.numpy().tolist() == [3, 3]
