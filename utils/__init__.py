"""Utilities outside the engine, such as `data`; modules are imported when they are first used."""

from importlib import import_module as _import_module
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING

from ..compat.missing_names import UTILS as _MISSING
from ..graph.unsupported import missing_attribute as _missing_attribute
from .rank_zero import get_logger as get_logger, rank_zero_only as rank_zero_only

if TYPE_CHECKING:
    from . import (
        checkpoint as checkpoint,
        custom_op as custom_op,
        data as data,
        dtensor as dtensor,
        flop_counter as flop_counter,
        global_view as global_view,
        tensor as tensor,
    )

ON_DEMAND = tuple(
    """
    _pytree benchmark checkpoint custom_op data dlpack dtensor flop_counter global_view hooks
    model_zoo tensor tensorboard
    """.split()
)


def __getattr__(name: str) -> _ModuleType:
    if name in ON_DEMAND:
        return _import_module(f"{__name__}.{name}")
    raise _missing_attribute(_MISSING, __name__, name)
