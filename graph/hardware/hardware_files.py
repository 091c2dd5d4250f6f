"""Hardware files: the TOML files of machines, read and checked field by field."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from itertools import pairwise
from math import inf, isfinite
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch

from ...errors import OnefoldValueError
from .hardware_record import ALGORITHMS, Algorithm, Curve, Hardware, Link, Protocol

FOLDER = Path(__file__).parent
HERE = "cpu"  # what eager assumes of processes on CPUs
SHIPPED = tuple(sorted({path.stem for path in FOLDER.glob("*.toml")} - {HERE}))
THIS_MACHINE = "this-machine"

T = TypeVar("T")


def this_machine() -> Path:
    """The file to which `python -m onefold.graph.calibrate` writes its measurements."""
    return Path.home() / ".cache" / "onefold" / f"{THIS_MACHINE}.toml"


def read(hardware: str | Path | Hardware) -> Hardware:
    """The record of a machine: of a shipped type by its name, "this-machine", or a file's path.

    A record is returned as it is. Raises OnefoldValueError for an unknown name, and for a file with
    a field that is missing, wrong or unknown: it names the file, the field and what is expected.

    >>> read("h100").links[0].ranks
    8.0
    """
    if isinstance(hardware, Hardware):
        return hardware
    if not isinstance(hardware, (str, Path)):
        raise OnefoldValueError(
            f"hardware must be a name, the path of a TOML file or a Hardware, but got "
            f"{type(hardware).__name__}"
        )
    path = _path_of(hardware)
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise OnefoldValueError(f"hardware file {path} cannot be read: {error}") from error
    return _hardware(_Table(str(path), "", content))


def _path_of(hardware: str | Path) -> Path:
    if hardware == THIS_MACHINE:
        path = this_machine()
        if not path.exists():
            raise OnefoldValueError(
                f"hardware {THIS_MACHINE!r} was not measured yet: there is no {path}; run "
                "`python -m onefold.graph.calibrate`, which writes it"
            )
        return path
    if hardware in (*SHIPPED, HERE):
        return FOLDER / f"{hardware}.toml"
    path = Path(hardware)
    if path.suffix != ".toml":
        names = ", ".join(map(repr, (*SHIPPED, HERE, THIS_MACHINE)))
        raise OnefoldValueError(
            f"unknown hardware {str(hardware)!r}; choose one of {names}, or give the path of a "
            "file that ends in .toml"
        )
    return path


def _hardware(table: _Table) -> Hardware:
    memory, host, launch = (table.inner(name) for name in ("memory", "host", "launch"))
    efficiency, overlap = table.inner("efficiency"), table.inner("overlap")
    found = Hardware(
        name=table.text("name"),
        peak=table.inner("peak").rates(),
        memory_bytes=int(memory.number("bytes", "bytes")),
        memory_bandwidth=memory.number("bandwidth", "bytes per second"),
        launch=launch.number("op", "seconds", zero=True),
        launches_ahead=launch.switch("ahead"),
        contention=overlap.number("contention", "a factor", least=1.0),
        matmul=efficiency.curve("matmul", "flop"),
        attention=efficiency.curve("attention", "flop"),
        memory=efficiency.curve("memory", "bytes"),
        links=_links(table),
        collective_launch=launch.number("collective", "seconds", zero=True),
        skew=overlap.number("skew", "a share", zero=True),
        narrow=efficiency.number("narrow", "the length of a dim", zero=True),
        context_bytes=int(memory.number("context", "bytes", zero=True)),
        communicator_bytes=int(memory.number("communicator", "bytes", zero=True)),
        host_bandwidth=host.number("bandwidth", "bytes per second"),
        host_bytes=int(host.number("bytes", "bytes")) if host.has("bytes") else None,
        ops=table.inner("ops").factors() if table.has("ops") else {},
    )
    for each in (memory, host, launch, overlap, efficiency, table):
        each.end()
    return found


def _links(table: _Table) -> tuple[Link, ...]:
    tables = table.several("links")
    found: list[Link] = []
    for each in tables:
        last = each is tables[-1]
        ranks = inf if last and not each.has("ranks") else each.number("ranks", "a count of ranks")
        found.append(
            Link(
                name=each.text("name"),
                ranks=ranks,
                launch=each.number("launch", "seconds", zero=True),
                latency=each.number("latency", "seconds", zero=True),
                bandwidth=each.number("bandwidth", "bytes per second"),
                algorithms=each.algorithms("algorithms"),
                efficiency=each.curve("efficiency", "bytes"),
                message=each.number("message", "seconds", zero=True),
                protocols=each.protocols("protocols") if each.has("protocols") else (),
            )
        )
        each.end()
        before = found[-2].ranks if len(found) > 1 else 1
        if last and ranks != inf:
            each.fail("ranks", "no such field at the last level, which joins all ranks", ranks)
        if ranks != inf and (ranks % before or ranks == before):
            each.fail("ranks", f"a multiple of the {before:g} ranks of the level before", ranks)
    return tuple(found)


class _Table:
    """One table of a file, whose fields are checked as they are read."""

    def __init__(self, file: str, path: str, content: dict[str, Any]) -> None:
        self._file, self._path, self._content = file, path, content
        self._asked: set[str] = set()

    def fail(self, key: str, expected: str, found: object) -> NoReturn:
        raise OnefoldValueError(
            f"hardware file {self._file}: {self._path}{key} must be {expected}, but is {found!r}"
        )

    def has(self, key: str) -> bool:
        return key in self._content

    def end(self) -> None:
        """Raise for a field that has not been read."""
        for key in self._content.keys() - self._asked:
            known = ", ".join(sorted(self._asked))
            raise OnefoldValueError(
                f"hardware file {self._file}: {self._path}{key} is not a field; there are {known}"
            )

    def _get(self, key: str, expected: str, fits: Callable[[Any], bool]) -> Any:
        self._asked.add(key)
        if key not in self._content:
            raise OnefoldValueError(
                f"hardware file {self._file}: {self._path}{key} is missing; it must be {expected}"
            )
        value = self._content[key]
        if not fits(value):
            self.fail(key, expected, value)
        return value

    def number(self, key: str, unit: str, least: float = 0.0, zero: bool = False) -> float:
        bound = f">= {least:g}" if zero or least else "> 0"

        def fits(value: Any) -> bool:
            return _is_number(value) and (value >= least if zero or least else value > 0)

        return float(self._get(key, f"{unit}: a number {bound}", fits))

    def text(self, key: str) -> str:
        return str(self._get(key, "a text", lambda value: isinstance(value, str) and value != ""))

    def switch(self, key: str) -> bool:
        return bool(self._get(key, "true or false", lambda value: isinstance(value, bool)))

    def inner(self, key: str) -> _Table:
        content = self._get(key, "a table", lambda value: isinstance(value, dict))
        return _Table(self._file, f"{self._path}{key}.", content)

    def several(self, key: str) -> list[_Table]:
        def fits(value: Any) -> bool:
            return _is_list(value) and all(isinstance(each, dict) for each in value)

        content = self._get(key, "one or more tables, from the closest ranks to the farthest", fits)
        places = (f"{self._path}{key}[{i}]." for i in range(len(content)))
        return [_Table(self._file, *pair) for pair in zip(places, content, strict=True)]

    def curve(self, key: str, unit: str) -> Curve:
        def fits(value: Any) -> bool:
            pairs = _is_list(value) and all(
                _is_list(each) and len(each) == 2 and all(map(_is_number, each)) for each in value
            )
            return (
                pairs
                and all(size > 0 and 0 < share <= 1 for size, share in value)
                and all(low[0] < high[0] for low, high in pairwise(value))
            )

        expected = f"a list of [{unit}, share of the peak, from 0 to 1] with sizes that go up"
        points = self._get(key, expected, fits)
        return Curve(tuple((float(size), float(share)) for size, share in points))

    def algorithms(self, key: str) -> tuple[Algorithm, ...]:
        def fits(value: Any) -> bool:
            return _is_list(value) and all(each in ALGORITHMS for each in value)

        chosen = self._get(key, f"a list of some of {', '.join(map(repr, ALGORITHMS))}", fits)
        return tuple(chosen)

    def protocols(self, key: str) -> tuple[Protocol, ...]:
        def fits(value: Any) -> bool:
            return _is_list(value) and all(
                _is_list(each)
                and len(each) == 3
                and all(map(_is_number, each))
                and min(each[:2]) >= 0
                and 0 < each[2] <= 1
                for each in value
            )

        expected = "a list of [launch, latency, share of the bandwidth], times in seconds"
        return tuple([Protocol(*map(float, each)) for each in self._get(key, expected, fits)])

    def rates(self) -> dict[torch.dtype, float]:
        """Flop/s by dtype."""
        names = dict.fromkeys(["float32", *self._content])
        found = {name: self.number(name, "flop per second") for name in names}
        for name in found:
            if not isinstance(getattr(torch, name, None), torch.dtype):
                self.fail(name, "under the name of a dtype of torch", self._content[name])
        return {getattr(torch, name): rate for name, rate in found.items()}

    def factors(self) -> dict[str, float]:
        return {name: self.number(name, "a factor") for name in self._content}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def _is_list(value: object) -> bool:
    return isinstance(value, list) and bool(value)
