"""Report page: the data of a report in one HTML file, which needs no network."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from html import escape
from pathlib import Path

from ...engine.cluster import planned
from ...errors import OnefoldTypeError, OnefoldValueError
from ..compiled_graph import Compiled
from ..hardware import Hardware
from ..hardware.hardware_files import THIS_MACHINE, this_machine
from ..job_summary import metas_of
from ..simulator import simulate
from .report_contents import gather
from .report_data import Report, Searched

_FOLDER = Path(__file__).parent
_PLACE = re.compile(r"\{\{(title|style|script|data)\}\}")
# What could end a script, and what JavaScript would read as ends of lines.
_ESCAPED = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


def write(
    path: str | Path,
    title: str,
    compiled: Compiled,
    hardware: str | Path | Hardware | None = None,
    tokens: int | None = None,
    memory: bool = True,
    searched: Iterable[Searched] = (),
) -> None:
    """Simulate a call and write its page; `nn.Graph.report` has the arguments."""
    target = _checked(path)
    if hardware is None:
        hardware = _default(compiled)
    if hardware is None and tokens is not None:
        raise OnefoldValueError(
            "report: tokens are counted per second, which needs hardware; name it with hardware="
        )
    simulation = None if hardware is None else simulate(compiled, hardware, tokens, memory=False)
    text = page(gather(title, compiled, simulation, searched, memory))
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        # Whoever opens it meanwhile, and other ranks that write it too, have a whole page.
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, target)
    except OSError as error:
        raise _unwritable(target, str(error)) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def page(report: Report) -> str:
    """The page as HTML. All strings of the data are escaped."""
    data = json.dumps(report.as_json(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    parts = {
        "title": escape(report.title),
        "style": (_FOLDER / "page.css").read_text(encoding="utf-8"),
        "script": (_FOLDER / "page.js").read_text(encoding="utf-8"),
        "data": data.translate(_ESCAPED),
    }
    template = (_FOLDER / "page.html").read_text(encoding="utf-8")
    return _PLACE.sub(lambda found: parts[found[1]], template)


def _default(compiled: Compiled) -> str | Path | None:
    """The hardware of the cluster that is planned, or this machine if it was measured."""
    cluster = planned()
    if cluster is not None:
        return cluster.hardware
    placements = {meta.placement for meta in metas_of(compiled.program, compiled.stages)}
    elsewhere = any(each is not None and each.planned for each in placements)
    return THIS_MACHINE if this_machine().exists() and not elsewhere else None


def _checked(path: str | Path) -> Path:
    """The path, if a file can be written there; checked before anything is computed."""
    if not isinstance(path, (str, Path)):
        raise OnefoldTypeError(f"report needs a path, but got {type(path).__name__}")
    target = Path(path)
    try:
        if target.is_dir():
            raise _unwritable(target, "it is a folder")
        if not target.parent.is_dir():
            raise _unwritable(target, f"there is no folder {target.parent}")
    except OSError as error:
        raise _unwritable(target, str(error)) from error
    return target


def _unwritable(path: Path, why: str) -> OnefoldValueError:
    return OnefoldValueError(
        f"report: {path} cannot be written: {why}; give the path of a file in a folder that exists"
    )
