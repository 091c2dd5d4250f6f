"""Which Triton kernels there are, and which of them a run of the interpreter tests launches."""

from functools import wraps

import pytest

from onefold.kernels.gpu.launch import registry
from onefold.kernels.gpu.launch.aot_cases import module_of
from onefold.kernels.gpu.launch.jit_kernel import Kernel


def name_of(kernel):
    """Module and name, as in the budget."""
    return f"{module_of(kernel)}.{kernel.name}"


def all_kernels():
    """Every kernel that a module of kernels/gpu defines, by name."""
    found = [value for module in registry.modules() for value in vars(module).values()]
    return {name_of(kernel): kernel for kernel in found if isinstance(kernel, Kernel)}


class Launches:
    """A plugin of pytest: fails a run of all tests in a folder that leaves a kernel out.

    Kernels that are launched with no programs do not count. With pytest-xdist the processes that
    run the tests tell theirs to the one that began them.
    """

    def __init__(self, folder, kernels):
        self.files = {path.name for path in folder.glob("test_*.py")}
        self.kernels = {kernel: name for name, kernel in kernels.items()}
        self.launched = set()
        self.whole = False  # whether no test of the folder was left out

    def record(self):
        """Note every launch from now on."""
        launch = Kernel.launch

        @wraps(launch)
        def noted(kernel, grid, *args, **kwargs):
            if 0 not in grid and kernel in self.kernels:
                self.launched.add(self.kernels[kernel])
            return launch(kernel, grid, *args, **kwargs)

        Kernel.launch = noted

    def left(self):
        """The kernels that a whole run did not launch; none are known of a part of it."""
        return sorted(set(self.kernels.values()) - self.launched) if self.whole else []

    def pytest_collection_finish(self, session):
        given = {item.path.name for item in session.items}
        self.whole = given >= self.files and not any("::" in arg for arg in session.config.args)

    def pytest_deselected(self, items):
        self.files.add("some tests were not wanted")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error):
        told = getattr(node, "workeroutput", {}).get("launches", {})
        self.launched |= set(told.get("launched", ()))
        self.whole = self.whole or told.get("whole", False)

    def pytest_sessionfinish(self, session, exitstatus):
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["launches"] = {"launched": sorted(self.launched), "whole": self.whole}
        elif exitstatus == pytest.ExitCode.OK and self.left():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        if self.left():
            text = f"no test launches {', '.join(self.left())}"
            terminalreporter.write_line(f"FAILED tests of every kernel: {text}", red=True)
