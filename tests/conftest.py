"""What every test gets: one torch thread, hypothesis profiles, and skips that say their reason."""

import os
from pathlib import Path

import pytest
import torch
from missing_packages import hypothesis

if os.environ.get("TRITON_INTERPRET") == "1":
    import scalar_probes

    from onefold.kernels.gpu.launch import trace_cache

    trace_cache.TRACED_AFTER = 0  # so that what is called once is replayed, too
    scalar_probes.apply()

from onefold.distributed.world import virtual_world

REPO = Path(__file__).resolve().parents[1]
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

torch.set_num_threads(1)
if not torch.cuda.is_available():
    # torch would keep each seed for later, with the whole stack as text: a millisecond every time.
    for module in (torch.cuda.random, torch.xpu.random, torch.mtia):
        module._lazy_call = lambda *args, **kwargs: None

# Fixed examples by default, so that a failure is the same on every machine. To look for new ones:
# pytest --hypothesis-profile=dev. TEST_MAX_EXAMPLES=1000 deepens either.
_examples = int(os.environ.get("TEST_MAX_EXAMPLES", "50"))
hypothesis.settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=_examples,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile("dev", deadline=None, max_examples=4 * _examples)
hypothesis.settings.load_profile("ci")


class RootIsAPlainFolder:
    """Keeps pytest from importing the repository root a second time, as a package of tests.

    The root holds an `__init__.py`, so pytest would import it under the name of the clone's folder
    and the session would hold two copies of the package.
    """

    @staticmethod
    def pytest_collect_directory(path, parent):
        return pytest.Dir.from_parent(parent, path=path) if path == REPO else None


@pytest.fixture
def world():
    """A fresh virtual world, in which this process owns every rank."""
    with virtual_world() as fresh:
        yield fresh


def pytest_configure(config):
    # A hook in this file would only be asked about folders below tests/.
    config.pluginmanager.register(RootIsAPlainFolder())


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available() or INTERPRETED:
        return
    skip = pytest.mark.skip(reason="needs a CUDA device, and torch.cuda.is_available() is False")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
