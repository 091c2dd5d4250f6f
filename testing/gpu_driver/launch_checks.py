"""Checks of one launch of a compiled kernel against what its form claims, and the GPU allows."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...kernels.aot.facts import HAZARD, Facts, beyond

_GRID = (2**31 - 1, 65535, 65535)
_THREADS = 1024  # of one program
_ALIGNMENT = 16
_FLOATS = {"fp16", "bf16", "fp32", "f32", "fp64"}
RANGES = {
    f"{sign}{bits}": (0, 2**bits - 1) if sign == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for sign in "iu"
    for bits in (8, 16, 32, 64)
} | {"i1": (0, 1), "u1": (0, 1)}


@dataclass(frozen=True)
class Form:
    """A compiled form: Triton's types of its parameters, and what its code was specialized on.

    `constants` are by the place of the parameter, as are the `divisible` ones, which are multiples
    of 16 in every launch. `facts` are None if nothing was compiled to a binary.
    """

    name: str
    types: Mapping[str, object]
    constants: Mapping[int, object]
    divisible: frozenset[int]
    warps: int = 4
    scratch: int = 0  # bytes of global memory that a program needs
    facts: Facts | None = None
    options: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        types = ", ".join(
            f"{name}={_short(self.constants[place])}"
            if place in self.constants
            else f"{name}: {kind}{' % 16' * (place in self.divisible)}"
            for place, (name, kind) in enumerate(self.types.items())
        )
        return f"{self.name}({types}) {self.warps} warps"


def form_faults(form: Form, target: str) -> Iterator[str]:
    """Why a form cannot start on a target, may be wrong there, or is slow: limits, hazards,
    spills, serialized wgmma.
    """
    if form.warps * 32 > _THREADS:
        yield f"{form.warps} warps, of {_THREADS // 32}"
    if form.facts is not None:
        yield from beyond(form.facts, target)
        if form.facts.hazard:
            yield HAZARD
        if form.facts.spills:
            yield f"spills {form.facts.spills} bytes a thread"
        if form.facts.serialized:
            yield "wgmma instructions are serialized"


def launch_faults(
    form: Form, grid: Sequence[object], args: Sequence[object], has_allocator: bool = True
) -> Iterator[str]:
    """What is wrong with a launch: its grid, and arguments that the form was not compiled for."""
    if len(grid) != len(_GRID) or not all(
        isinstance(size, int) and 0 < size <= most for size, most in zip(grid, _GRID, strict=True)
    ):
        yield f"grid {tuple(grid)}: three integers from 1 to {_GRID} are allowed"
    if form.scratch and not has_allocator:
        yield f"needs {form.scratch} bytes of global memory, and no allocator is set"
    if len(args) != len(form.types):
        yield f"{len(args)} arguments, and the form has {len(form.types)} parameters"
        return
    for place, ((name, kind), arg) in enumerate(zip(form.types.items(), args, strict=True)):
        for text in _faults(form, place, str(kind), arg):
            yield f"{name}: {text}"


def _faults(form: Form, place: int, kind: str, arg: object) -> Iterator[str]:
    """What is wrong with one argument."""
    if kind == "constexpr":
        constant = form.constants.get(place)
        if not _same(getattr(constant, "value", constant), arg):
            yield f"{_short(arg)} is given, and {_short(constant)} was compiled in"
        return
    if kind.startswith("*"):
        yield from _pointer_faults(arg, place in form.divisible)
    elif kind in _FLOATS:
        if not isinstance(arg, (int, float)):
            yield f"a {type(arg).__name__} is given for {kind}"
    elif kind in RANGES:
        low, high = RANGES[kind]
        if not isinstance(arg, int):
            yield f"a {type(arg).__name__} is given for {kind}"
        elif not low <= arg <= high:
            yield f"{arg} is not in the range of {kind}"
        elif place in form.divisible and arg % _ALIGNMENT:
            yield f"{arg} is no multiple of {_ALIGNMENT}, as the form was compiled for"
    else:
        yield f"parameters of type {kind} are not known to this check"


def address_of(arg: Any) -> int:
    """The address that an argument is or has; raises TypeError for what has none."""
    return operator.index(arg.data_ptr() if hasattr(arg, "data_ptr") else arg)


def _pointer_faults(arg: Any, divisible: bool) -> Iterator[str]:
    try:
        at = address_of(arg)
    except TypeError:
        yield f"a {type(arg).__name__} is given for a pointer"
        return
    if divisible and at % _ALIGNMENT:
        yield f"address {at:#x} is no multiple of {_ALIGNMENT}, as the form was compiled for"


def _same(constant: object, arg: object) -> bool:
    """Whether an argument is the constant that was compiled in."""
    if constant is arg:
        return True
    given = getattr(arg, "value", arg)
    return type(constant) is type(given) and bool(constant == given)


def _short(value: object) -> str:
    value = getattr(value, "value", value)
    return str(getattr(value, "__name__", value))
