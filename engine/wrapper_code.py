"""The code of wrappers: functions that call another one, and hand its errors on."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping
from functools import cache

from .generated import function as generated

_TEMPLATE = """\
def call({taken}):{spelled}
    try:
        return core({passed})
    except Exception as caught:
        numbers = handle_error(core, caught, ({places}), {named})
        if numbers is None:
            raise
    return boundary(*numbers[0], **numbers[1])
"""
_SPELLED = """
    if {asked}:
        return call_by_own_names(boundary, core, {given})"""


@cache
def wrapper_code(
    positional: int,
    positional_only: int,
    keywords: int,
    flags: int,
    aliases: tuple[str, ...],
    later: range,
) -> types.CodeType:
    """The code of a wrapper with so many parameters of each kind, named by their positions.

    Functions with the same kinds share it, so that importing the package compiles few.
    """
    names = [f"p{index}" for index in range(positional + keywords + flags.bit_count())]
    by_keyword, rest = names[positional : positional + keywords], names[positional + keywords :]
    taken, passed = names[:positional], names[:positional]
    named = [f"{each!r}: {each}" for each in by_keyword]
    if positional_only:
        taken.insert(positional_only, "/")
    if flags & inspect.CO_VARARGS:
        several = f"*{rest.pop(0)}"
        taken.append(several)
        passed.append(several)
    elif keywords or aliases:
        taken.append("*")
    places = "".join(f"{each}, " for each in passed)
    taken += [*by_keyword, *aliases]
    asked = [f"{each} is not None" for each in aliases]
    asked += [f"{names[index]} is absent" for index in later]
    own = names[: positional + keywords]
    given = ", ".join([f"{each!r}: {each}" for each in (*own, *aliases)])
    passed += [f"{each}={each}" for each in by_keyword]
    if rest:
        several = f"**{rest.pop()}"
        taken.append(several)
        passed.append(several)
        named.append(several)
    text = _TEMPLATE.format(
        taken=", ".join(taken),
        spelled=_SPELLED.format(asked=" or ".join(asked), given=f"{{{given}}}") if asked else "",
        passed=", ".join(passed),
        places=places,
        named=f"{{{', '.join(named)}}}",
    )
    return generated(text, "call", "boundary", {}).__code__


def renamed(constant: object, own: Mapping[str, str]) -> object:
    """A constant of a code object, with the names of keywords in it replaced."""
    if isinstance(constant, tuple):
        return tuple([renamed(each, own) for each in constant])
    return own.get(constant, constant) if isinstance(constant, str) else constant
