"""The tuples with named fields that functions of several outputs in `torch_table` give."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable

from ..tensor import Tensor
from .torch_row import ROWS

_make: Callable[..., type[tuple[Tensor, ...]]] = namedtuple


def _title(name: str) -> str:
    return name.replace(".", "_").title().replace("_", "")


RESULTS = {
    row.name: _make(_title(row.name), row.outputs, module=__name__)
    for row in ROWS.values()
    if row.outputs
}
globals().update({kind.__name__: kind for kind in RESULTS.values()})  # to be pickled by name
