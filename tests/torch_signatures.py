"""The parameters of torch's functions and tensor methods, read from the stubs that torch ships."""

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

STUBS = Path(torch.__file__).parent / "_C"
# What creation takes as `**layout` here, and what has no meaning: results are always new tensors.
ELSEWHERE = frozenset(
    "device dtype implicit layout memory_format names out pin_memory requires_grad".split()
)


class Form(NamedTuple):
    """The names of parameters: those that may be given by place, and those only by name."""

    by_place: tuple[str, ...]
    by_name: frozenset[str]


def _form(function):
    given = function.args
    places = [each.arg.rstrip("_") for each in (*given.posonlyargs, *given.args)]
    names = {each.arg for each in given.kwonlyargs}
    by_place = tuple(name for name in places if name not in (*ELSEWHERE, "self"))
    return Form(by_place, frozenset(names - ELSEWHERE))


def _of_named_dims(function):
    """Whether an overload is for dims with names, which tensors here have not."""
    return any(word in ast.unparse(function.args) for word in ("str | EllipsisType", "Dimname"))


def _read(body):
    found = {}
    for function in body:
        if isinstance(function, ast.FunctionDef) and not _of_named_dims(function):
            found.setdefault(function.name, []).append(_form(function))
    return found


@cache
def _functions():
    return ast.parse((STUBS / "_VariableFunctions.pyi").read_text()).body


@cache
def functions():
    """{name: the parameters of each overload} of torch's functions."""
    return _read(_functions())


@cache
def taking_out():
    """The names of torch's functions that take `out=`; those of torch.linalg as `linalg.inv`."""
    found = {
        function.name
        for function in _functions()
        if isinstance(function, ast.FunctionDef)
        and "out" in [each.arg for each in function.args.kwonlyargs]
    }
    for space in (torch.linalg, torch.fft, torch.special):
        leaf = space.__name__.removeprefix("torch.")
        for name in dir(space):
            first = (getattr(space, name).__doc__ or "").strip().splitlines()[:4]
            if "out=None" in "".join(first):
                found.add(f"{leaf}.{name}")
    return found


@cache
def methods():
    """The same of the methods of torch.Tensor, without `self`."""
    tree = ast.parse((STUBS / "__init__.pyi").read_text())
    base = next(node for node in tree.body if getattr(node, "name", "") == "TensorBase")
    return _read(base.body)
