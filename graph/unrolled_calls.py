"""Unrolled calls: the calls of a program as the source of one function, one line for each.

This saves most of the overhead of a loop over a list of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..engine.shard_runner import KernelCall

_FIRST = 2  # the line of the first call


def unrolled(calls: Sequence[tuple[Any, ...]]) -> Callable[[list[Any]], None]:
    """The function that runs the calls on values in their places, as `CallList.run` does.

    >>> run = unrolled([(lambda a, b: a + b, (0, 1), 2, None, (0, 1))])
    >>> places = [1, 2, None]
    >>> run(places)
    >>> places
    [None, None, 3]
    """
    lines = ["def run(p):"]
    names: dict[str, Any] = {"__name__": __name__}
    for index, (call, taken, made, several, dead) in enumerate(calls):
        written_out: KernelCall | None = getattr(call, "kernel_call", None)
        if written_out is not None and several is None:
            kernel, present, args = written_out
            names[f"f{index}"] = kernel
            names.update((f"a{index}_{number}", arg) for number, arg in enumerate(args))
            given = [f"p[{place}]{'[0]' * is_tensor}"
                     for place, is_tensor in zip(taken, present, strict=True)]  # fmt: skip
            given += [f"a{index}_{number}" for number in range(len(args))]
            parts = [f"p[{made}] = (f{index}({', '.join(given)}),)"]
        else:
            names[f"f{index}"] = call
            parts = [f"{_targets(made, several)}f{index}({', '.join(_places(taken))})"]
        if dead:
            parts.append(f"{' = '.join(_places(dead))} = None")
        lines.append(f"    {'; '.join(parts)}")
    lines.append("    return")
    exec(compile("\n".join(lines), f"<program of {len(calls)} calls>", "exec"), names)
    run: Callable[[list[Any]], None] = names["run"]
    return run


def _targets(made: int, several: Sequence[int] | None) -> str:
    if several is None:
        return f"p[{made}] = "
    return f"{', '.join(_places(several))}, = " if several else ""


def _places(places: Sequence[int]) -> list[str]:
    return [f"p[{place}]" for place in places]


def failed_call(error: Exception) -> int:
    """The index of the call that raised an error, inside the function that the caller ran."""
    assert error.__traceback__ is not None and error.__traceback__.tb_next is not None
    return error.__traceback__.tb_next.tb_lineno - _FIRST
