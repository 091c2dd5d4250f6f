"""The command `python -m onefold`, or `onefold`: the package's commands by short names."""

from __future__ import annotations

import runpy
import sys
from typing import NamedTuple


class Command(NamedTuple):
    """A row: the module that `python -m` would run, and what it does."""

    module: str
    about: str


COMMANDS = {
    "doctor": Command("utils.doctor", "check this machine, and say what to install or set"),
    "launch": Command("distributed.launch", "start a program with one process per rank"),
    "calibrate": Command("graph.calibrate", "measure this machine for graph.simulate"),
    "schedule": Command("graph.schedules.picture", "draw the schedule of a pipeline"),
    "kernels": Command("kernels", "list which functions Triton computes"),
    "compile": Command("kernels.aot", "compile Triton kernels for a GPU that is not here"),
    "tune": Command("kernels.tune", "measure configurations of kernels on this GPU"),
    "driver": Command("testing.gpu_driver", "check a program's launches without a GPU"),
}


def usage() -> str:
    """The commands, one per line."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.about}" for name, command in COMMANDS.items()]
    about = "usage: onefold COMMAND ...\n\n{}\n\n`onefold COMMAND --help` has the options of each."
    return about.format("\n".join(lines))


def main() -> int:
    """Run the command that is named first, with the rest of the command line."""
    given = sys.argv[1:]
    if not given or given[0] in ("-h", "--help"):
        print(usage())
        return 0 if given else 2
    command = COMMANDS.get(given[0])
    if command is None:
        print(f"onefold: there is no command {given[0]!r}\n\n{usage()}", file=sys.stderr)
        return 2
    module = f"{__package__}.{command.module}"
    sys.argv = [f"onefold {given[0]}", *given[1:]]
    runpy.run_module(module, run_name="__main__", alter_sys=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
