"""Every environment variable that onefold reads, typed, in one table.

Read a variable through its row (`TIMEOUT.read()`); nothing else in the package looks into
`os.environ`. Import the names from this module, not the module: the package's public `env`,
`flow.env`, is another one. A variable set to the empty string counts as not set.
Values are read at each call, so a test may change them; callers on a hot path keep the value.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from .errors import OnefoldValueError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Variable(Generic[T]):
    """One environment variable: how its text is read and what it means."""

    name: str
    parse: Callable[[str], T]
    default: T
    allowed: str
    doc: str

    def is_set(self) -> bool:
        """Whether the variable is in the environment with a value that is not empty."""
        return bool(os.environ.get(self.name))

    def read(self) -> T:
        """The value, or the default. OnefoldValueError when the text is not allowed."""
        text = os.environ.get(self.name)
        if not text:
            return self.default
        try:
            return self.parse(text.strip())
        except ValueError:
            raise OnefoldValueError(
                f"environment variable {self.name}={text!r} is not valid: {self.name} must be "
                f"{self.allowed} ({self.doc}). Set it to an allowed value, or unset it to get "
                f"the default {self.default!r}."
            ) from None

    def write(self, value: object) -> None:
        """Set the variable, for this process and those that it starts."""
        os.environ[self.name] = str(value)


def _one_of(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(text)
        return text

    return parse


def _integer(low: int, high: int | None = None) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if value < low or (high is not None and value > high):
            raise ValueError(text)
        return value

    return parse


def _number(name: str, low: int, doc: str) -> Variable[int | None]:
    """A number that only launchers set."""
    return Variable(name, _integer(low), None, f"an integer >= {low}", doc)


def _seconds(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value <= 0:
        raise ValueError(text)
    return value


_BOOLS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _boolean(text: str) -> bool:
    value = _BOOLS.get(text.lower())
    if value is None:
        raise ValueError(text)
    return value


_BOOL_TEXT = "1, true, yes, on, 0, false, no or off"

DEVICE = Variable(
    "ONEFOLD_DEVICE", _one_of("cpu"), "", "cpu, or empty", "cpu: read every 'cuda' as 'cpu'"
)
TIMEOUT = Variable(
    "ONEFOLD_TIMEOUT", _seconds, 300.0, "a number of seconds > 0", "longest wait for other ranks"
)
WARN_AFTER = Variable(
    "ONEFOLD_WARN_AFTER",
    _seconds,
    30.0,
    "a number of seconds > 0",
    "how long a rank waits for others before it reports that it waits",
)
CHECK = Variable(
    "ONEFOLD_CHECK", _boolean, False, _BOOL_TEXT, "compare the ranks' ops before each collective"
)
KERNELS = Variable(
    "ONEFOLD_KERNELS",
    _one_of("auto", "triton", "torch"),
    "auto",
    "auto, triton or torch",
    "which kernels run: auto is triton on cuda and torch on cpu",
)
RANK = _number("RANK", 0, "this process's rank; set by the launcher")
WORLD_SIZE = _number("WORLD_SIZE", 1, "number of ranks; set by the launcher")
LOCAL_RANK = _number("LOCAL_RANK", 0, "this process's number on its machine")
LOCAL_WORLD_SIZE = _number("LOCAL_WORLD_SIZE", 1, "number of ranks on this machine")
GROUP_RANK = _number("GROUP_RANK", 0, "this machine's number (torchrun's name)")
NODE_RANK = _number("NODE_RANK", 0, "this machine's number where GROUP_RANK is not set")
MASTER_ADDR = Variable("MASTER_ADDR", str, "127.0.0.1", "a host name", "where rank 0 listens")
MASTER_PORT = Variable(
    "MASTER_PORT", _integer(1, 65535), 29500, "a port, 1 to 65535", "the port rank 0 listens on"
)
AGENT_STORE = Variable(
    "TORCHELASTIC_USE_AGENT_STORE",
    _boolean,
    False,
    _BOOL_TEXT,
    "the launcher, not rank 0, listens on MASTER_PORT; set by the launcher",
)
RESTART_COUNT = Variable(
    "TORCHELASTIC_RESTART_COUNT",
    _integer(0),
    0,
    "an integer >= 0",
    "how often the job was started before this start; set by the launcher",
)
TOKEN = Variable(
    "ONEFOLD_TOKEN",
    str,
    "",
    "a text that only this job knows",
    "the first part of every key of the job in its key-value store",
)
STORE = Variable(
    "ONEFOLD_STORE",
    str,
    "",
    "a path",
    "a file on a disk that all ranks share, to meet through instead of MASTER_ADDR",
)
GLOO_INTERFACE = Variable(
    "GLOO_SOCKET_IFNAME",
    str,
    "",
    "the name of a network interface",
    "over which Gloo reaches other machines; without it that of the machine's name, or the one "
    "that leads to MASTER_ADDR",
)
BLOCKING_WAIT = Variable(
    "TORCH_NCCL_BLOCKING_WAIT",
    _boolean,
    False,
    _BOOL_TEXT,
    "torch lets the host wait for NCCL; CUDA graphs then hold no communication",
)
GRAPH_MIXING = Variable(
    "NCCL_GRAPH_MIXING_SUPPORT",
    _boolean,
    True,
    _BOOL_TEXT,
    "NCCL lets CUDA graphs and other collectives overlap; without it they hold no communication",
)
ERROR_DIR = Variable(
    "ONEFOLD_ERROR_DIR",
    str,
    "",
    "a folder",
    "where a failing rank leaves its traceback; set by the launcher",
)

VARIABLES = tuple([value for value in tuple(globals().values()) if isinstance(value, Variable)])


def node_rank() -> int | None:
    """This machine's number: GROUP_RANK, else NODE_RANK, else None."""
    group = GROUP_RANK.read()
    return NODE_RANK.read() if group is None else group


def describe() -> str:
    """The table of all variables with their present values, one per line, ready to print."""
    rows = [("variable", "value", "default", "allowed", "meaning")]
    for var in VARIABLES:
        value = repr(var.read()) if var.is_set() else "-"
        if var is TOKEN and var.is_set():
            value = "secret"
        rows.append((var.name, value, repr(var.default), var.allowed, var.doc))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        + "  "
        + row[4]
        for row in rows
    )
