"""The names users may rely on are a frozen list, and importing them stays cheap."""

import pickle
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

import onefold
from onefold.engine.ops import PUBLIC

LIST = Path(__file__).with_name("public_api.txt")

# Slow to import, or only wanted by examples: `import onefold` must not load them.
UNWANTED = (
    "hypothesis",
    "matplotlib",
    "mlxtend",
    "onefold.graph.report",
    "onefold.graph.simulator",
    "torch._dynamo",
    "torch._inductor",
    "torch.distributed.pipelining",
    "tqdm",
)


def test_all_is_sorted_and_without_repetition():
    assert list(onefold.__all__) == sorted(set(onefold.__all__))


def test_every_public_name_exists():
    assert [name for name in onefold.__all__ if not hasattr(onefold, name)] == []


MODULES = [onefold, onefold.nn.functional, onefold.linalg, onefold.fft, onefold.special]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_functions_are_pickled(module):
    names = [name for name in dir(module) if isinstance(getattr(module, name), FunctionType)]
    found = {name: getattr(module, name) for name in names if name[0] != "_"}
    assert len(found) > 20
    for name, function in found.items():
        assert pickle.loads(pickle.dumps(function)) is function, name


def test_modules_with_functions_are_pickled():
    layer = onefold.nn.TransformerEncoderLayer(4, 2, activation=onefold.nn.functional.relu)
    assert pickle.loads(pickle.dumps(layer)).activation is onefold.nn.functional.relu


def test_the_list_of_public_names_is_frozen():
    """An op may come without a change here: its row of samples is what tests it."""
    frozen = LIST.read_text().split()
    new = sorted(set(onefold.__all__) - set(frozen) - set(PUBLIC))
    gone = sorted(set(frozen) - set(onefold.__all__))
    assert (new, gone) == ([], []), "if this change is meant, run `make api` and commit the list"


def loaded_by(module, unwanted):
    """Which of `unwanted` importing a module loads; torch itself loads some, such as tqdm."""
    program = f"""
import sys, torch
before = set(sys.modules)
import {module}
print(*(name for name in {unwanted!r} if name in sys.modules and name not in before))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.split()


def test_import_loads_nothing_unwanted():
    assert loaded_by("onefold", UNWANTED) == []


def test_names_on_demand_load_when_they_are_used():
    names = {*onefold.ON_DEMAND, "utils.data", "utils.global_view"} - {"utils"}
    later = tuple(f"onefold.{name}" for name in names)
    assert loaded_by("onefold", later) == []
    assert loaded_by("onefold; onefold.utils.data.DataLoader", later) == ["onefold.utils.data"]


def test_an_unwanted_import_is_noticed():
    assert loaded_by("json.tool", ("json.tool", "torch", "unknown")) == ["json.tool"]


@pytest.mark.parametrize("state", ["enable", "disable"])
def test_the_import_leaves_the_garbage_collector_as_it_was(state):
    program = f"import gc; gc.{state}(); import onefold; print(gc.isenabled())"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stdout.strip() == str(state == "enable"), done.stderr
