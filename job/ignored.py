"""Settings that programs have and that have no effect here; each warns once."""

from __future__ import annotations

from ..errors import warn


class IgnoredSettingWarning(UserWarning):
    """A setting was accepted that changes nothing here."""


_noted: set[tuple[str, str]] = set()


def note_ignored(of: str, name: str, value: object, reason: str) -> None:
    """Warn, once in a program, that a setting changes nothing, and why."""
    if (of, name) not in _noted:
        _noted.add((of, name))
        warn(f"{of}: {name}={value!r} changes nothing: {reason}", IgnoredSettingWarning)
