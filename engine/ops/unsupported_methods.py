"""Functions of torch and OneFlow that are not supported: errors that say what to use instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from ...errors import OnefoldRuntimeError
from ..names import register_as
from ..tensor import Tensor

_SPARSE = "the tensor is dense; use to_sparse() for a sparse one in coordinate form"
_REMOVED = "torch has removed it"

# What to do instead of calling the function, by its name.
_INSTEAD = {
    **dict.fromkeys(
        """ccol_indices coalesce col_indices crow_indices indices row_indices sparse_dim
        to_sparse_bsc to_sparse_bsr to_sparse_csc to_sparse_csr
        """.split(),
        _SPARSE,
    ),
    **dict.fromkeys(
        "is_offloaded load offload".split(),
        "tensors stay where they are; use y = x.cpu() and del x to free a device's memory, and "
        "y.cuda() to take it back",
    ),
    "index": "dims have no names; use x[positions]",
    "eig": f"{_REMOVED}; use linalg.eig(x), or linalg.eigh(x) for a symmetric matrix",
    "lstsq": f"{_REMOVED}; use linalg.lstsq(A, B)",
    "solve": f"{_REMOVED}; use linalg.solve(A, B), whose arguments are in the other order",
    "symeig": f"{_REMOVED}; use linalg.eigh(x)",
}


def _refusal(name: str, instead: str) -> Callable[..., NoReturn]:
    def call(self: Tensor, *args: object, **kwargs: object) -> NoReturn:
        raise OnefoldRuntimeError(f"{name}: {instead}")

    return call


UNSUPPORTED = frozenset(_INSTEAD)
for _name, _what in _INSTEAD.items():
    register_as(_name, _refusal(_name, _what), f"Not supported: {_what}.")
