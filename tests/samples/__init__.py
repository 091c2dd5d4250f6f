"""The samples of every op: one file per family, each with a list named SAMPLES."""

from importlib import import_module
from pkgutil import iter_modules


def load():
    """Every sample of every family, in order."""
    found = []
    for module in sorted(info.name for info in iter_modules(__path__)):
        found += import_module(f"{__name__}.{module}").SAMPLES
    return found
