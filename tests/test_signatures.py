"""Functions and tensor methods take torch's parameters, under torch's names and in its order.

An overload of torch's with the most parameters must be among ours; ours may have more.
"""

import inspect

import pytest
import torch
from torch_signatures import ELSEWHERE, Form, functions, methods, taking_out

import onefold as flow
from onefold.engine.names import all_names
from onefold.engine.ops import PUBLIC

PARTS = "one parameter stands for those of two overloads, as in torch's documentation"
WORD = "`from` is a word of Python: it is taken by name, and by place as `low`"
TYPES = "products are in the dtype of their matrices, so there is no `out_dtype`"

DIFFERENT = {
    **dict.fromkeys("dsplit hsplit split tensor_split unsafe_split vsplit".split(), PARTS),
    **dict.fromkeys("random_ uniform_".split(), WORD),
    **dict.fromkeys("addmm baddbmm bmm mm".split(), TYPES),
    "new": "a constructor, which takes sizes or data; there are no storages",
    "to_sparse": "in coordinate form only, without the options of other forms",
    "polygamma": "as torch's function, with the number first; as a method n comes alone",
}


def parameters(function, leave_out):
    """The parameters of a function of ours, without the first ones."""
    return list(inspect.signature(function).parameters.values())[leave_out:]


def takes(ours, form):
    """Whether these parameters take what an overload of torch's takes."""
    every = {each.name for each in ours}
    if "args" in every:
        return True  # an in-place form hands everything on to its function
    sizes = any(each.kind is each.VAR_POSITIONAL for each in ours)
    rest = iter([each.name for each in ours if each.kind is not each.KEYWORD_ONLY])
    # Variable arguments take the sizes by place; a parameter of torch's name takes them by name.
    named = {each.name for each in ours if each.kind is each.KEYWORD_ONLY} | {"size"}
    by_place = [name for name in form.by_place if not sizes or name not in named]
    return all(name in rest for name in by_place) and (form.by_name <= every or "options" in every)


def differences(named, forms, leave_out):
    """{name: the parameters of both} of the functions that take others than torch's."""
    found = {}
    for name, function in named.items():
        most = max(len((*form.by_place, *form.by_name)) for form in forms[name])
        longest = [form for form in forms[name] if len((*form.by_place, *form.by_name)) == most]
        ours = parameters(function, leave_out)
        if not any(takes(ours, form) for form in longest):
            found[name] = f"torch {longest}, ours {list(map(str, ours))}"
    return found


def layer_functions():
    """{name: the parameters} of the Python functions of torch.nn.functional."""
    found = {}
    for name, function in inspect.getmembers(torch.nn.functional, inspect.isfunction):
        given = [*inspect.signature(function).parameters.values()]
        kinds = {each.kind for each in given}
        if not name.startswith("_") and given[0].VAR_POSITIONAL not in kinds:
            places = [each.name for each in given if each.kind is not each.KEYWORD_ONLY]
            names = {each.name for each in given if each.kind is each.KEYWORD_ONLY}
            left_out = {*ELSEWHERE, "inplace", "_stacklevel"}
            by_place = tuple(name for name in places if name not in left_out)
            found[name] = [Form(by_place, frozenset(names - left_out))]
    return found


def of_functions():
    named = {name: getattr(flow, name) for name in PUBLIC if name in functions()}
    assert len(named) > 500
    return differences(named, functions(), 0)


def of_layers():
    forms = layer_functions()
    named = {name: getattr(flow.nn.functional, name, None) for name in forms}
    named = {name: function for name, function in named.items() if function is not None}
    assert len(named) > 80
    return differences(named, forms, 0)


def of_methods():
    named = {
        name: method
        for name, method in inspect.getmembers(flow.Tensor, inspect.isroutine)
        if name in methods() and not name.startswith("_")
    }
    assert len(named) > 450
    return differences(named, methods(), 1)


@pytest.mark.parametrize("find", [of_functions, of_layers, of_methods])
def test_parameters_are_torchs(find):
    assert {name: why for name, why in find().items() if name not in DIFFERENT} == {}


def test_no_exception_is_stale():
    found = of_functions() | of_layers() | of_methods()
    assert [name for name in DIFFERENT if name not in found] == []


def of_two_places():
    """The names of functions that torch has both in `torch` and in torch.nn.functional."""
    return sorted(name for name in functions() if hasattr(torch.nn.functional, name))


@pytest.mark.parametrize("name", of_two_places())
def test_what_is_in_two_places_takes_what_torch_takes_there(name):
    ours = parameters(getattr(flow, name), 0)
    places = [each.name for each in ours if each.kind is not each.KEYWORD_ONLY]
    if {"args", "layout"} & set(places):  # everything is handed on
        return
    theirs = [list(form.by_place) for form in functions()[name]]
    # One function does the work of two where torch has one for the indices of maxima.
    left_out = {*ELSEWHERE, "return_indices"} - set(max(theirs, key=len))
    assert [place for place in places if place not in left_out] == max(theirs, key=len)


# Functions that are an error, or that take everything by place.
WITHOUT_OUT = {"lstsq", "solve", "symeig"}


def test_functions_take_out_where_torchs_do():
    known = {name: function for name, function in all_names().items() if name in taking_out()}
    assert len(known) > 350
    without = {n for n, f in known.items() if "out" not in inspect.signature(f).parameters}
    assert without - WITHOUT_OUT == set()


# The checks must be able to fail.


def test_a_difference_is_noticed():
    forms = {"f": [Form(("input", "dim"), frozenset({"keepdim"}))]}
    for right in (lambda input, dim, keepdim: 0, lambda input, more, dim, *, keepdim: 0):
        assert differences({"f": right}, forms, 0) == {}
    for wrong in (lambda input, keepdim: 0, lambda dim, input, keepdim: 0,
                  lambda input, dim: 0, lambda input, *, dim, keepdim: 0):  # fmt: skip
        assert set(differences({"f": wrong}, forms, 0)) == {"f"}
