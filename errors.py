"""The exception family of onefold, and the user's line that an error message names.

Every error that a user can cause is an `OnefoldError` and also the builtin that a torch user
expects, so `except ValueError` and `except onefold.OnefoldError` both catch it. A message says
what was asked, what was found, what is allowed and what to do.
"""

from __future__ import annotations

import os
import sys
import warnings
from functools import cache
from types import FrameType

import torch


class OnefoldError(Exception):
    """Base of every error that onefold raises on purpose.

    `raised_on` is the rank that raised the error first where ranks tell each other of it: errors
    that depend on the data of global tensors, in a launched world. Else it is None.
    """

    raised_on: int | None = None


class OnefoldValueError(OnefoldError, ValueError):
    """An argument has the right type but a value that is not allowed."""


class OnefoldTypeError(OnefoldError, TypeError):
    """An argument has the wrong type."""


class OnefoldRuntimeError(OnefoldError, RuntimeError):
    """The operation is not possible in the present state."""


class LinAlgError(OnefoldRuntimeError, torch.linalg.LinAlgError):  # type: ignore[misc, name-defined]
    """A matrix has no inverse or no such factors, or the computation did not converge."""


class OnefoldNotImplementedError(OnefoldRuntimeError, NotImplementedError):
    """What was asked is not implemented for these arguments, or by this class."""


class OnefoldAttributeError(OnefoldError, AttributeError):
    """A module has no submodule, parameter or buffer, or a tensor no attribute, of a name."""


class OnefoldIndexError(OnefoldError, IndexError):
    """An index or a dim is out of range."""


class PlacementError(OnefoldRuntimeError, OnefoldValueError):
    """A placement is malformed, names ranks outside the world, or does not fit the others.

    OneFlow raises RuntimeError for these, so it is one too.
    """


class SbpError(OnefoldRuntimeError, OnefoldValueError):
    """An sbp or nd_sbp is malformed or does not fit its tensor or placement.

    OneFlow raises RuntimeError for these, so it is one too.
    """


class ShapeError(OnefoldRuntimeError, OnefoldValueError):
    """Shapes do not fit each other.

    torch raises RuntimeError for some of these and ValueError for others, so this is both.
    """


class MixedTensorsError(OnefoldRuntimeError, OnefoldTypeError):
    """One operation was given local and global tensors together."""


class CheckpointError(OnefoldRuntimeError, OnefoldValueError):
    """A file is damaged, incomplete or cannot be read, or does not fit its target."""


class MissingFileError(CheckpointError, FileNotFoundError):
    """There is no file of the name that was given."""


class AutogradError(OnefoldRuntimeError):
    """A gradient was asked for that cannot be computed."""


class CommError(OnefoldRuntimeError):
    """Ranks could not exchange data; the base of the three errors below."""


class CommTimeout(CommError):
    """A wait for other ranks took longer than ONEFOLD_TIMEOUT seconds."""


class PeerLost(CommError):
    """Another rank ended, or its connection broke, while this one was communicating with it."""


class RankMismatch(CommError):
    """Ranks met in one collective with different operations (see docs/divergence.md)."""


def kind_of(value: object) -> str:
    """The type of what was given in place of an onefold Tensor, for an error; and what to do."""
    if isinstance(value, torch.Tensor):
        return "torch.Tensor; use onefold.from_torch(x)"
    return type(value).__name__


_PACKAGE = __name__.rpartition(".")[0]
# Frames of these stand between the user's line and ours: overrides, decorators, our own threads.
_BETWEEN = frozenset({"torch", "contextlib", "functools", "threading"})
# These live under the package's root directory but are users of the package.
_USERS = frozenset({"tests", "examples", "benchmarks"})


@cache
def _is_user(module: str) -> bool:
    if module == _PACKAGE:
        return False
    if module.startswith(_PACKAGE + "."):
        return module[len(_PACKAGE) + 1 :].partition(".")[0] in _USERS
    return module.partition(".")[0] not in _BETWEEN


def user_line(frame: FrameType | None = None) -> str:
    """The nearest line outside the package, as `file.py:LINE in function`.

    The walk starts at `frame`, by default at the caller. Returns `<no user line>` when every
    frame is inside the package (a thread of ours).

    Example: called from line 3 of train.py, at module level, it is 'train.py:3 in <module>'.
    """
    frame = _user_frame(frame or sys._getframe(1))
    return "<no user line>" if frame is None else _place(frame)


def _place(frame: FrameType) -> str:
    # Only the file's own name: machines may keep the same program in different folders, and
    # ranks compare these lines.
    code = frame.f_code
    return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} in {code.co_name}"


def is_user_frame(frame: FrameType) -> bool:
    """Whether the code of a frame is outside the package and what stands between."""
    return _is_user(frame.f_globals.get("__name__", ""))


def _user_frame(frame: FrameType | None) -> FrameType | None:
    while frame is not None and not _is_user(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame


def warn(message: str, category: type[Warning]) -> None:
    """Warn of the nearest line outside the package, which Python then shows and counts."""
    frame = _user_frame(sys._getframe(1))
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
        return
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    file, line = frame.f_code.co_filename, frame.f_lineno
    warnings.warn_explicit(
        message, category, file, line, frame.f_globals.get("__name__", ""), registry
    )


# What runs an op, and is therefore in every stack.
_MECHANISM = frozenset({"engine", "graph", "errors"})


def user_stack(depth: int, only_user: bool = True) -> str:
    """Up to `depth` lines, innermost first, joined by " < "; each as `user_line` gives it.

    With `only_user` False lines of the package's own layers (onefold.nn) count as well.
    """
    found: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(found) < depth:
        module = frame.f_globals.get("__name__", "")
        inner = module.removeprefix(_PACKAGE + ".")
        ours = inner != module and inner.partition(".")[0] not in _MECHANISM
        if _is_user(module) or (ours and not only_user):
            found.append(_place(frame))
        frame = frame.f_back
    return " < ".join(found) or "<no user line>"
