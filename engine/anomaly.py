"""detect_anomaly: names the op and the line whose result first held NaN or infinity."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch

from ..distributed.world import world
from ..errors import OnefoldRuntimeError, user_line
from . import interpreter
from .autograd_tape import Edge, Node, Output
from .tensor import Tensor

R = TypeVar("R")


class AnomalyError(OnefoldRuntimeError):
    """A result held NaN or infinity under `detect_anomaly`."""


class _Anomalies(interpreter.Through):
    """Checks the result of every op and of every gradient."""

    def __init__(self, inner: interpreter.Interpreter | None) -> None:
        super().__init__(inner)
        self._lines: WeakKeyDictionary[Edge, str] = WeakKeyDictionary()
        self._backward: tuple[str, str] | None = None  # the op whose gradient runs, and its line

    def run(self, call: Callable[..., R], op: object, args: tuple[object, ...]) -> R:
        result = super().run(call, op, args)
        if self.captures:
            return result
        line = user_line()
        name = str(getattr(op, "name", op))
        for tensor in _tensors(result):
            if tensor.node is not None and not tensor.is_leaf:
                node = tensor.node.node if isinstance(tensor.node, Output) else tensor.node
                self._lines.setdefault(node, line)
            found = _kind(tensor)
            if found and _are_finite(args):
                error = AnomalyError(self._text(name, found, line, tensor))
                if tensor.is_global:
                    world().report_error(error)
                raise error
        return result

    def run_vjp(self, node: Node, vjp: Callable[..., R], args: tuple[object, ...]) -> R:
        before = self._backward
        self._backward = (node.op.name, self._lines.get(node, "a line before detect_anomaly"))
        try:
            return super().run_vjp(node, vjp, args)
        finally:
            self._backward = before

    def _text(self, name: str, found: str, line: str, tensor: Tensor) -> str:
        what = f"detect_anomaly: {name} returned {found} values, {tensor.meta!r}, at {line}"
        if self._backward is None:
            return f"{what}. What it was given was finite."
        op, at = self._backward
        return (
            f"{what}, in backward: Function '{op}' returned {found} values in its gradient. Its "
            f"forward was called at {at}. The gradient that it was given was finite."
        )


def _tensors(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [v for v in value if isinstance(v, Tensor)] if isinstance(value, (tuple, list)) else []


def _are_finite(args: tuple[object, ...]) -> bool:
    """Whether an op had tensor inputs, all of them finite: then it is the origin of what is not."""
    tensors = [tensor for arg in args for tensor in _tensors(arg)]
    given = [part for arg in args for part in (arg if isinstance(arg, tuple) else (arg,))]
    numbers = [arg for arg in given if isinstance(arg, float)]  # a mask is filled with -inf
    return bool(tensors) and all(map(isfinite, numbers)) and not any(map(_kind, tensors))


def _kind(tensor: Tensor) -> str:
    """The kind of the first value that is not finite: "nan", "infinite", or "" if there is none."""
    for shard in tensor.shards:
        if shard.is_floating_point() or shard.is_complex():
            finite = torch.isfinite(shard)
            if not bool(finite.all()):
                return "nan" if bool(torch.isnan(shard).any()) else "infinite"
    return ""


class detect_anomaly:
    """In the block, raise at the op, or gradient of an op, that produces the first NaN or infinity.

    The error, a RuntimeError, names the op and the line in the program; in backward also the line
    of the op whose gradient it is. With `check_nan=False` nothing is checked. Each op waits for its
    result, so use it for debugging only. In a launched world the rank that has the value raises.

    >>> import onefold as flow
    >>> with flow.autograd.detect_anomaly():
    ...     flow.log(flow.tensor([-1.0]))
    Traceback (most recent call last):
    ...
    onefold.engine.anomaly.AnomalyError: detect_anomaly: log returned nan values, ...
    """

    def __init__(self, check_nan: bool = True) -> None:
        self._check = check_nan
        self._before: list[interpreter.Interpreter | None] = []

    def __enter__(self) -> None:
        self._before.append(interpreter.get_current())
        _set(self._check)

    def __exit__(self, *exc: object) -> None:
        interpreter.set_current(self._before.pop())


class set_detect_anomaly(detect_anomaly):
    """Switch `detect_anomaly` on or off immediately; as a context manager it switches back."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        super().__init__(check_nan)
        self._outside = interpreter.get_current()
        _set(mode and check_nan)

    def __enter__(self) -> None:
        """Does nothing: the constructor has switched."""

    def __exit__(self, *exc: object) -> None:
        interpreter.set_current(self._outside)


def is_anomaly_enabled() -> bool:
    """Whether results are checked."""
    return isinstance(interpreter.get_current(), _Anomalies)


def _set(mode: bool) -> None:
    current = interpreter.get_current()
    if mode and not isinstance(current, _Anomalies):
        interpreter.set_current(_Anomalies(current))
    elif not mode and isinstance(current, _Anomalies):
        interpreter.set_current(current.inner)
