"""Which modules read the parameters of a model when they are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import torch

from ..engine.sbp import NdSbp
from ..engine.tensor import Tensor
from .gathered_parameters import Gather

if TYPE_CHECKING:
    from .module import Module


def readers(model: Module) -> Iterator[tuple[str, Module, Module]]:
    """Each parameter's name, the module that has it, and the one that reads it when called.

    A parameter of several modules comes once for each.
    """
    modules = dict(model.named_modules())
    for name, _ in model.named_parameters(remove_duplicate=False):
        path = name.rpartition(".")[0]
        owner = model.get_submodule(path)
        above = modules.get(path.rpartition(".")[0]) if path else None
        yield name, owner, above if above is not None and above._reads_children else owner


def add_gathers(
    model: Module,
    layouts: Mapping[str, NdSbp],
    reshard_after_forward: bool,
    dtype: torch.dtype | None = None,
    grad_dtype: torch.dtype | None = None,
    own: Callable[[str], Callable[[Tensor], Tensor]] | None = None,
) -> None:
    """Make the modules that read these parameters gather them to these layouts.

    See `Gather` for the other arguments; `own` gives that of each name.
    """
    params = dict(model.named_parameters(remove_duplicate=False))
    chosen = {id(params[name]): sbp for name, sbp in layouts.items()}
    for name, owner, reader in readers(model):
        sbp = chosen.get(id(params[name]))
        if sbp is not None:
            new = Gather(
                owner._parameters, name.rpartition(".")[2], sbp, reshard_after_forward, dtype,
                grad_dtype, None if own is None else own(name),
            )  # fmt: skip
            add_gather(reader, new)


def add_gather(reader: Module, new: Gather) -> None:
    """Let calls of a module gather a tensor, in place of how they gathered it before."""
    others = [g for g in reader._weight_gathers if g.table is not new.table or g.name != new.name]
    reader.__dict__.update(_weight_gathers=(*others, new), _has_hooks=True)
