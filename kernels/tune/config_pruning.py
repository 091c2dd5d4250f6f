"""Configurations that are not worth a measurement, by what the compiler says of them.

Worker processes compile the forms of all configurations, without a GPU. The GPU then finds most of
them in Triton's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from ..aot import compile_kernel, workers
from ..aot.facts import SHARED, Facts, beyond
from ..gpu.launch.configs import Config, Tuned
from ..gpu.launch.registry import all_tuned
from .config_search import Form, form_of

SPILLS = 256  # bytes that every form may spill in a configuration that is measured
_LIMIT = 120.0  # seconds for the forms of one configuration
Task = tuple[str, str, str, Form, str]  # kernel, dtype, shape class, configuration, target
Done = Callable[[Task, str], None]


def can_compile(arch: str) -> bool:
    """Whether there are facts for this kind of GPU."""
    return arch in SHARED


def compile_all(tasks: Sequence[Task], processes: int, done: Done) -> None:
    """Compile the forms of configurations in parallel, and report each configuration.

    `done(task, why)` receives "" for a configuration that may be measured.
    """

    def ended(task: Task, why: str | None, error: str) -> None:
        done(task, error.split("\n")[0] if why is None else why)

    workers.run(reason, tasks, processes, _LIMIT, ended)


def tasks_of(
    tuned: Tuned, dtype: torch.dtype, shape_class: str, configs: Iterable[Config], arch: str
) -> list[Task]:
    """The tasks for these configurations."""
    name = tuned.name(dtype).removeprefix("torch.")
    return [(tuned.kernel, name, shape_class, form_of(config), arch) for config in configs]


def reason(kernel: str, dtype: str, shape_class: str, form: Form, arch: str) -> str:
    """Why a configuration is not measured, or "". Runs in a worker."""
    tuned = all_tuned()[kernel]
    cases = tuned.cases(dtype, tuned.shapes[shape_class], dict(form))
    found = [compile_kernel.facts_of(case, arch) for case in cases if arch in case.targets]
    return judge(found, arch)


def judge(found: Sequence[Facts], arch: str) -> str:
    """Why none of these forms of a configuration can be the fastest, or "".

    >>> from onefold.kernels.aot.facts import Facts
    >>> from onefold.kernels.tune.config_pruning import judge
    >>> judge([Facts(255, 4000, 1024, 128, 16, 1, 16, "", False)], "sm_90")
    'spills 4000 bytes'
    >>> judge([Facts(128, 0, 300000, 128, 16, 1, 16, "", False)], "sm_90")
    '300000 bytes of shared memory, of 232448'
    """
    reasons = [_fault(facts, arch) for facts in found]
    return reasons[0] if reasons and all(reasons) else ""


def _fault(facts: Facts, arch: str) -> str:
    if limits := beyond(facts, arch):
        return limits[0]
    return f"spills {facts.spills} bytes" if facts.spills > SPILLS else ""
