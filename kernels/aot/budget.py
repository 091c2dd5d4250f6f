"""Budget: what kernels were made of when someone last looked, and what became worse since."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from ...errors import OnefoldValueError
from .facts import Facts, beyond

PATH = Path(__file__).with_name("budget.json")
_COMPILER = "compiler"  # the key of the line that says what compiled
_STEP = 8  # registers are given to threads in steps of this many
_MORE_LOADS = 1.25  # as many instructions for the same bytes are a loss of vector loads

Table = Mapping[str, Facts]  # by "module.kernel(types; constants) warpsxstages target"


@dataclass
class Comparison:
    """What differs between a budget and what was found. `failed` is a list of readable lines."""

    failed: list[str] = field(default_factory=list)
    better: list[str] = field(default_factory=list)


def write(path: Path, table: Table, compiler: str) -> None:
    """One line for each form, sorted."""
    lines = [f"{json.dumps(_COMPILER)}: {json.dumps(compiler)}"]
    lines += [f"{json.dumps(key)}: {json.dumps(table[key].as_json())}" for key in sorted(table)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def read(path: Path) -> tuple[dict[str, Facts], str]:
    """The budget and its compiler. OnefoldValueError where the file is no budget."""
    try:
        values = json.loads(path.read_text())
        compiler = str(values.pop(_COMPILER))
        return {key: Facts(**value) for key, value in values.items()}, compiler
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OnefoldValueError(
            f"{path} is not a budget of kernels ({error}). Write it anew: "
            "python -m onefold.kernels.aot --write"
        ) from error


def compare(budget: Table, found: Table, same_compiler: bool = True) -> Comparison:
    """Compare what was found with the budget.

    With another compiler than the budget's, registers and counts are not compared: what spills,
    what does not fit, and what is no longer wide or multiplied by matrix instructions still is.
    """
    result = Comparison()
    for key in sorted(found):
        now, then = found[key], budget.get(key)
        result.failed += [f"{key}: does not start: {text}" for text in beyond(now, _target(key))]
        if then is None:
            result.failed.append(f"{key}: not in the budget: {_short(now)}")
            continue
        worse, better = _differences(then, now, same_compiler)
        if worse:
            result.failed.append(f"{key}: worse: {', '.join(worse)}")
        if better:
            result.better.append(f"{key}: better: {', '.join(better)}")
    result.failed += [
        f"{key}: in the budget, but no such form is left"
        for key in sorted(set(budget) - set(found))
    ]
    return result


def _target(key: str) -> str:
    return key.rpartition(" ")[2]


def _short(facts: Facts) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.as_json().items())


def _differences(then: Facts, now: Facts, same_compiler: bool) -> tuple[list[str], list[str]]:
    worse: list[str] = []
    better: list[str] = []
    for name in (part.name for part in fields(Facts)):
        old, new = getattr(then, name), getattr(now, name)
        sense = _sense(name, old, new, same_compiler)
        if sense:
            (worse if sense > 0 else better).append(f"{name} {old!r} -> {new!r}")
    return worse, better


def _sense(name: str, old: int | str | bool, new: int | str | bool, same_compiler: bool) -> int:
    """1 where a fact became worse, -1 where it became better, 0 where it is as good."""
    if old == new:
        return 0
    if name in {"matrix", "tma"}:
        return 1 if old else -1
    assert not isinstance(old, str) and not isinstance(new, str)
    if name in {"load", "store"}:
        return 1 if new < old else -1
    if name == "registers":
        old, new = -(-old // _STEP), -(-new // _STEP)
        return (new > old) - (new < old) if same_compiler else 0
    if name == "loads":
        if not same_compiler:
            return 0
        return int(new > _MORE_LOADS * old) - int(old > _MORE_LOADS * new)
    if name == "shared" and not same_compiler:
        return 0
    if name == "threads":
        return 0
    return 1 if new > old else -1
