"""Stand-ins for packages that a machine with a GPU may not have: hypothesis, matplotlib and tqdm.

Tests of drawn examples are then skipped. Nothing is drawn, and progress is not shown.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import pytest


class Anything(ModuleType):
    """A module in which every name is found, and every call returns it."""

    __path__ = ()

    def __call__(self, *args, **kwargs):
        return self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class Settings(Anything):
    """As a decorator, it leaves a test as it is."""

    def __call__(self, *args, **options):
        return args[0] if args else lambda test: test


class tqdm:
    """What a bar goes through, without the bar."""

    def __init__(self, values, **options):
        self.values = values

    def __iter__(self):
        return iter(self.values)

    def set_postfix(self, **values):
        pass


def given(*args, **kwargs):
    """Mark a test as skipped."""
    return pytest.mark.skip(reason="needs hypothesis, which is not installed")


def leave_test(*args, **kwargs):
    """A decorator that leaves a test as it is."""
    return lambda test: test


def no_hypothesis():
    """The stand-in for hypothesis."""
    found = Anything("hypothesis")
    found.given, found.settings, found.seed, found.example = (
        given, Settings("settings"), leave_test, leave_test,
    )  # fmt: skip
    return found


def no_bars():
    """The stand-in for tqdm."""
    found = ModuleType("tqdm")
    found.tqdm = tqdm
    return found


DRAWING = [
    "matplotlib",
    *("matplotlib." + name for name in "axes figure patches pyplot backends".split()),
    "matplotlib.backends.backend_agg",
]
STAND_INS = {
    "hypothesis": {"hypothesis": no_hypothesis(), "hypothesis.strategies": Anything("strategies")},
    "matplotlib": {name: Anything(name) for name in DRAWING},
    "tqdm": {"tqdm": no_bars()},
}

for package, modules in STAND_INS.items():
    if find_spec(package) is None:
        sys.modules.update(modules)

hypothesis = import_module("hypothesis")
