"""Names of torch.serialization: `load` and `save`, and the classes that files of torch may hold.

`flow.load` reads a file of torch as `torch.load(weights_only=True)` does, so the classes that are
allowed there are torch's own list.
"""

from torch.serialization import (
    MAP_LOCATION,
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    get_unsafe_globals_in_checkpoint,
    safe_globals,
)

from .checkpoint.save_load import load, save

__all__ = [
    "MAP_LOCATION",
    "add_safe_globals",
    "clear_safe_globals",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "load",
    "safe_globals",
    "save",
]
