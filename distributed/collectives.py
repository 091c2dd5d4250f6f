"""(temporary stub)"""
from typing import Any

def _no(*a: Any, **k: Any) -> Any:
    raise NotImplementedError

all_reduce = all_gather = exchange = broadcast = transfer = gather_objects = barrier = _no
