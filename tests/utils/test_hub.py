"""flow.hub: entry points of a local folder, as torch.hub finds them; nothing is downloaded."""

import sys

import pytest
import torch

import onefold as flow

CONF = '''
from parts_of_hub import scale
dependencies = ["torch"]

def linear(width, bias=True):
    """A linear layer."""
    import onefold
    from more_parts_of_hub import first
    return onefold.nn.Linear(width, first(scale)(width), bias=bias)

def _hidden():
    pass
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "hubconf.py").write_text(CONF)
    (tmp_path / "parts_of_hub.py").write_text("def scale(n):\n    return 2 * n\n")
    (tmp_path / "more_parts_of_hub.py").write_text("def first(f):\n    return f\n")
    yield tmp_path
    for name in ("parts_of_hub", "more_parts_of_hub"):
        sys.modules.pop(name, None)


def test_entry_points(folder):
    before = list(sys.path)
    names = ["linear", "scale"]  # in the order of torch.hub.list
    assert flow.hub.list(folder) == names
    assert flow.hub.help(folder, "linear") == "A linear layer."
    layer = flow.hub.load(str(folder), "linear", 3, source="local", bias=False)
    assert layer.weight.shape == (6, 3)
    assert sys.path == before
    about = {"force_reload": True, "skip_validation": True, "trust_repo": True}
    assert flow.hub.list(folder, **about, verbose=False) == names
    assert flow.hub.help(folder, "linear", **about) == "A linear layer."
    again = flow.hub.load(str(folder), "linear", 3, source="local", verbose=False, **about)
    assert again.weight.shape == (6, 3)
    theirs = torch.hub.load(str(folder), "linear", 3, source="local")
    assert theirs.weight.shape == (6, 3)


def test_what_is_missing(folder, tmp_path):
    with pytest.raises(ValueError, match="clone the repository"):
        flow.hub.load("owner/name", "model", source="github")
    with pytest.raises(RuntimeError, match=r"no hubconf.py in 'owner/name'"):
        flow.hub.load("owner/name", "model")
    with pytest.raises(RuntimeError, match="cannot find callable 'other'"):
        flow.hub.load(folder, "other")
    with pytest.raises(TypeError, match="name of an entry point"):
        flow.hub.load(folder, 3)
    (tmp_path / "hubconf.py").write_text("dependencies = ['not_there_at_all']\n")
    with pytest.raises(RuntimeError, match="not_there_at_all"):
        flow.hub.list(folder)
