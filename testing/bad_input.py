"""Calls with arguments that make no sense: each is refused in words, or is right as in torch."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter, signature
from types import FrameType, TracebackType
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.utils._pytree import tree_leaves, tree_map

from ..engine.placement import Placement
from ..engine.sbp import broadcast
from ..engine.tensor import Tensor
from ..errors import OnefoldError
from .manual_layouts import close, make_global, make_local
from .sample_checks import value_of

Function: TypeAlias = Callable[..., Any]
Arguments: TypeAlias = tuple[Sequence[Any], Mapping[str, Any]]
SECONDS = 5.0  # that one call may take


class Opaque:
    """An object of a class that nothing knows."""

    def __repr__(self) -> str:
        return "Opaque()"


class Elsewhere(NamedTuple):
    """A tensor on another placement than the others of the call."""

    value: torch.Tensor


class Foreign(NamedTuple):
    """A torch tensor in place of one of ours."""

    value: torch.Tensor


class Made(NamedTuple):
    """An argument that is created for each call, such as a module that calls may change."""

    make: Callable[[], Any]


def junk(value: object) -> dict[str, Any]:
    """What is passed instead of `value`, by name."""
    found: dict[str, Any] = {
        "None": None,
        "a string": "abc",
        "an object": Opaque(),
        "nan": float("nan"),
        "inf": float("inf"),
        "2**70": 2**70,
        "-7": -7,
        "5": 5,
        "dims of no tensor": (99, -99),
        "an empty list": [],
        "an empty tuple": (),
        "ragged lists": [[1, 2], [3]],
        "a torch tensor": Foreign(torch.ones(2)),
        "a dict": {},
        "another shape": torch.ones(5, 7, 3, dtype=torch.float64),
        "no dims": torch.tensor(0.5),
    }
    if isinstance(value, torch.Tensor):
        found["another dtype"] = value.to(torch.complex64)
        found["whole numbers"] = value.detach().to(torch.int32)
        found["another placement"] = Elsewhere(value)
    return found


class Failure(NamedTuple):
    """A call that was not refused as it should be."""

    call: str  # the function, and what was passed where
    kind: str  # escaped, unnamed, accepted, differs, changed, hangs
    what: str  # the error's text, or the difference

    def __str__(self) -> str:
        return f"{self.call}: {self.kind}: {self.what}"


class Hangs(BaseException):
    """A call took longer than `SECONDS`."""


@contextmanager
def _limited() -> Iterator[None]:
    """Raise Hangs if the block takes too long, where signals can tell."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Call:
    """A call that both can make: ours, on tensors local or global, and torch's."""

    def __init__(
        self,
        name: str,
        function: Function,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        reference: Function | None = None,
        *,
        placement: Placement | None = None,
        random: bool = False,
        names: Sequence[str] = (),
        method: bool = False,
    ) -> None:
        self.name = name
        self.function = function
        self.args = tuple(args)
        self.kwargs = dict(kwargs or {})
        self.reference = reference
        self.placement = placement
        self.random = random
        self.method = method  # of a tensor, which the first argument therefore is
        own = getattr(function, "__name__", "").strip("_")
        self.names = {name.rpartition(".")[2].strip("_"), own or name, *names}

    def variations(self) -> Iterator[tuple[str, Arguments]]:
        """(what is passed where, the arguments) for each argument and each kind of junk."""
        for index, value in enumerate(self.args):
            for kind, made in junk(value).items():
                if self.method and not index and not isinstance(made, torch.Tensor):
                    continue
                given = (*self.args[:index], made, *self.args[index + 1 :])
                yield f"{kind} as {index}", (given, self.kwargs)
        for name, value in {**self._defaults(), **self.kwargs}.items():
            for kind, made in junk(value).items():
                yield f"{kind} as {name}", (self.args, {**self.kwargs, name: made})

    def _defaults(self) -> dict[str, Any]:
        """The parameters that the call leaves out, with their defaults."""
        try:
            parameters = list(signature(self.function).parameters.values())
        except (TypeError, ValueError):
            return {}
        named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        left = parameters[len(self.args) :]
        if any(each.kind is Parameter.VAR_POSITIONAL for each in parameters):
            left = [each for each in parameters if each.kind is Parameter.KEYWORD_ONLY]
        return {each.name: each.default for each in left if each.kind in named}

    def check(self, only: Callable[[str], bool] = lambda what: True) -> list[Failure]:
        """The failures among the variations of which `only` is true."""
        found = []
        for what, arguments in self.variations():
            text = f"{self.name} with {what}"
            if only(text):
                found += [Failure(text, *each) for each in self._check(arguments)]
        return found

    def _ours(self, value: Any) -> Any:
        if isinstance(value, Foreign):
            return value.value.clone()
        if isinstance(value, Made):
            return value.make()
        placement = self.placement
        if isinstance(value, Elsewhere):
            value = value.value
            placement = Placement("cpu", [1] if self.placement is None else [1, 0])
        if not isinstance(value, torch.Tensor):
            return value
        x = value.detach().clone()
        if placement is None:
            return make_local(x)
        return make_global(x, placement, (broadcast,) * placement.ndim)

    def _check(self, arguments: Arguments) -> list[tuple[str, str]]:
        args, kwargs = _map(self._ours, arguments)
        before = _snapshot((args, kwargs))
        try:
            with _limited():
                found = self.function(*args, **kwargs)
        except Hangs:
            return [("hangs", f"more than {SECONDS} s")]
        except OnefoldError as error:
            unnamed = not any(name.lower() in str(error).lower() for name in self.names)
            return [
                *([("unnamed", _text(error))] if unnamed else []),
                *_changes(before, (args, kwargs)),
            ]
        except Exception as error:  # noqa: BLE001  (any may escape)
            if _is_of_the_call(error):
                return []
            return [("escaped", _text(error)), *_changes(before, (args, kwargs))]
        return self._compare(found, arguments)

    def _compare(self, found: Any, arguments: Arguments) -> list[tuple[str, str]]:
        if self.reference is None:
            return []
        leaves = tree_leaves(arguments, is_leaf=_is_special)
        if any(isinstance(leaf, Elsewhere | Foreign) for leaf in leaves):
            return [("accepted", "tensors of several kinds")]
        args, kwargs = _map(_theirs, arguments)
        try:
            wanted = self.reference(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  (torch may raise any)
            return [("accepted", f"torch: {_text(error)}")]
        difference = _difference(found, wanted, self.random)
        return [("differs", difference)] if difference else []


def _is_special(value: object) -> bool:
    return isinstance(value, Elsewhere | Foreign | Made)


def _map(function: Function, arguments: Arguments) -> Arguments:
    args, kwargs = arguments
    made: Arguments = tree_map(function, (tuple(args), dict(kwargs)), is_leaf=_is_special)
    return made


def _theirs(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _is_of_the_call(error: Exception) -> bool:
    """Whether Python itself found that the arguments do not fit the parameters."""
    trace: TracebackType | None = error.__traceback__
    depth = 0
    while trace is not None:
        trace, depth = trace.tb_next, depth + 1
    return isinstance(error, TypeError) and depth == 1 and "argument" in str(error)


def _snapshot(arguments: object) -> list[Any]:
    return [
        (leaf.meta, leaf.version, [shard.clone() for shard in leaf.shards])
        if isinstance(leaf, Tensor) else None
        for leaf in tree_leaves(arguments)
    ]  # fmt: skip


def _changes(before: list[Any], arguments: object) -> list[tuple[str, str]]:
    """What became of the inputs of a call that failed."""
    for kept, leaf in zip(before, tree_leaves(arguments), strict=True):
        if kept is None:
            continue
        meta, version, shards = kept
        same = len(shards) == len(leaf.shards) and all(map(_equal, shards, leaf.shards))
        if leaf.meta is not meta or leaf.version != version or not same:
            return [("changed", f"an input {meta!r}")]
    return []


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return close(a, b)


def _difference(found: Any, wanted: Any, random: bool) -> str:
    ours, theirs = tree_leaves(found), tree_leaves(wanted)
    if len(ours) != len(theirs):
        return f"{len(ours)} results, not {len(theirs)}"
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, Tensor) and isinstance(b, torch.Tensor):
            try:
                value = value_of(a)
            except AssertionError as error:  # its shards are not what its meta says
                return str(error)
            if (value.shape, value.dtype) != (b.shape, b.dtype):
                return f"{value.dtype}{list(value.shape)}, not {b.dtype}{list(b.shape)}"
            if not random and not close(value, b.detach(), 1e-6):
                return f"{value}, not {b}"[:200]
        elif isinstance(a, Tensor) != isinstance(b, torch.Tensor):
            return f"{type(a).__name__}, not {type(b).__name__}"
        elif isinstance(b, bool | int | float | str) and not random and a != b:
            return f"{a!r}, not {b!r}"[:200]
    return ""
