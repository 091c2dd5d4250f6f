"""Interrupts at every line: what a call leaves when KeyboardInterrupt is raised there."""

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import onefold as flow
from onefold.engine import interpreter

HERE = str(Path(flow.__file__).resolve().parent)
Line = tuple[str, int]


class _Tracer:
    """Follows the lines of the package; raises at the one with the number `stop`."""

    def __init__(self, stop=None):
        self.lines = []
        self.stop = stop

    def __call__(self, frame, event, arg):
        name = frame.f_code.co_filename
        if not name.startswith(HERE) or "/tests/" in name or "/site-packages/" in name:
            return None
        if event == "line":
            self.lines.append((name.removeprefix(HERE), frame.f_lineno))
            if len(self.lines) == self.stop:
                raise KeyboardInterrupt
        return self


def lines_of(run: Callable[[], object]) -> list[Line]:
    """The lines of the package that a call runs, in turn."""
    tracer = _Tracer()
    _traced(tracer, run)
    return tracer.lines


def interrupted(run: Callable[[], object], stop: int) -> Line | None:
    """The line at which a call was interrupted, its `stop`-th; None if it ended before."""
    tracer = _Tracer(stop)
    try:
        _traced(tracer, run)
    except KeyboardInterrupt:
        return tracer.lines[stop - 1]
    return None


def _traced(tracer: _Tracer, run: Callable[[], object]) -> None:
    before = sys.gettrace()
    gc.disable()  # what it calls, at any time, is not part of the call
    sys.settrace(tracer)
    try:
        run()
    finally:
        sys.settrace(before)
        gc.enable()


def stops(lines: list[Line]) -> Iterator[int]:
    """The number of each line that a call runs, at its first and at its last time."""
    first = {line: number for number, line in reversed([*enumerate(lines, 1)])}
    last = {line: number for number, line in enumerate(lines, 1)}
    return iter(sorted({*first.values(), *last.values()}))


def modes() -> tuple[object, ...]:
    """What a call must leave as it was, whatever it does to the state."""
    return interpreter.is_grad_enabled(), interpreter.get_current()


def assert_whole(
    run: Callable[[], object],
    state: Callable[[], object],
    restore: Callable[[object], object],
    ran: bool = True,
) -> int:
    """At whatever line the call is interrupted, the state is that before or that after it.

    It is interrupted at every line that it runs, at the first and last time, when it `ran` once.
    Returns how often.
    """
    if ran:
        run()
    before = state()
    lines = lines_of(run)
    after = state()
    assert not same(before, after), "the call changes nothing, so there is nothing to see"
    restore(before)
    at = modes()
    count = 0
    torn, lost = [], []
    for stop in stops(lines):
        line = interrupted(run, stop)
        count += line is not None
        found = state()
        if not same(found, before) and not same(found, after):
            torn.append(line)
        if modes() != at:
            lost.append(line)
            interpreter.set_grad_enabled(at[0])
            interpreter.set_current(at[1])
        restore(before)
    assert not torn, f"half done when interrupted at {torn}"
    assert not lost, f"modes are lost when interrupted at {lost}"
    run()
    assert same(state(), after), "after interrupts a whole call does something else"
    return count


def same(one: object, other: object) -> bool:
    """Whether two pytrees of numpy arrays and values are the same, bit for bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(x, other[key]) for key, x in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "tobytes"):
        return one.tobytes() == other.tobytes()
    return one == other
