"""Budget: the committed facts of every compiled kernel, and the comparison with new ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from ...errors import OnefoldValueError
from .facts import HAZARD, Facts, beyond

PATH = Path(__file__).with_name("budget.json")
_COMPILER = "compiler"  # the key of the line that names the compiler
_STEP = 8  # registers are allocated to threads in multiples of this
_MORE_LOADS = 1.25  # a larger factor for the same bytes means that vector loads were lost

Table = Mapping[str, Facts]  # by "module.kernel(types; constants) warpsxstages target"


@dataclass
class Comparison:
    """The differences between a budget and new facts, as lines of text."""

    failed: list[str] = field(default_factory=list)
    better: list[str] = field(default_factory=list)


def write(path: Path, table: Table, compiler: str) -> None:
    """Write a budget: one line for each form, sorted."""
    lines = [f"{json.dumps(_COMPILER)}: {json.dumps(compiler)}"]
    lines += [f"{json.dumps(key)}: {json.dumps(table[key].as_json())}" for key in sorted(table)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def read(path: Path) -> tuple[dict[str, Facts], str]:
    """The budget and its compiler. Raises OnefoldValueError if the file is not a budget."""
    try:
        values = json.loads(path.read_text())
        compiler = str(values.pop(_COMPILER))
        return {key: Facts(**value) for key, value in values.items()}, compiler
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OnefoldValueError(
            f"{path} is not a budget of kernels ({error}). Write a new one: "
            "python -m onefold.kernels.aot --write"
        ) from error


def limits(found: Table) -> list[str]:
    """The forms that cannot start on their target or may be wrong, regardless of the budget."""
    lines: list[str] = []
    for key in sorted(found):
        texts = beyond(found[key], key.rpartition(" ")[2])
        lines += [f"{key}: does not start: {text}" for text in texts]
        lines += [f"{key}: {HAZARD}"] * found[key].hazard
    return lines


def compare(budget: Table, found: Table) -> Comparison:
    """Compare new facts with a budget of the same compiler."""
    result = Comparison(limits(found))
    for key in sorted(found):
        now, then = found[key], budget.get(key)
        if then is None:
            result.failed.append(f"{key}: not in the budget: {_short(now)}")
            continue
        worse, better = _differences(then, now)
        if worse:
            result.failed.append(f"{key}: worse: {', '.join(worse)}")
        if better:
            result.better.append(f"{key}: better: {', '.join(better)}")
    result.failed += [
        f"{key}: in the budget, but no such form is left"
        for key in sorted(set(budget) - set(found))
    ]
    return result


def _short(facts: Facts) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.as_json().items())


def _differences(then: Facts, now: Facts) -> tuple[list[str], list[str]]:
    worse: list[str] = []
    better: list[str] = []
    for name in (part.name for part in fields(Facts)):
        old, new = getattr(then, name), getattr(now, name)
        sense = _sense(name, old, new)
        if sense:
            (worse if sense > 0 else better).append(f"{name} {old!r} -> {new!r}")
    return worse, better


def _sense(name: str, old: int | str | bool, new: int | str | bool) -> int:
    """1 if a fact became worse, -1 if it became better, 0 otherwise."""
    if old == new:
        return 0
    if name in {"matrix", "tma"}:
        return 1 if old else -1
    assert not isinstance(old, str) and not isinstance(new, str)
    if name in {"load", "store"}:
        return 1 if new < old else -1
    if name == "registers":
        old, new = -(-old // _STEP), -(-new // _STEP)
        return (new > old) - (new < old)
    if name == "loads":
        return int(new > _MORE_LOADS * old) - int(old > _MORE_LOADS * new)
    if name == "threads":
        return 0
    return 1 if new > old else -1
