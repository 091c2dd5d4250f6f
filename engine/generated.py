"""Generated functions: their text is compiled once, and tracebacks and debuggers show it."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from types import CodeType
from typing import Any

_numbers = count(1)


@lru_cache(maxsize=1024)
def _code(text: str, title: str) -> CodeType:
    file = f"<{title} {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return compile(text, file, "exec")


def function(text: str, name: str, title: str, names: dict[str, Any]) -> Callable[..., Any]:
    """The function `name` that `text` defines, which may use `names`; its file is called `title`.

    Example: `function("def double(x): return 2 * x", "double", "example", {})`.
    """
    found: dict[str, Any] = {}
    exec(_code(text, title), names, found)
    made: Callable[..., Any] = found[name]
    return made
