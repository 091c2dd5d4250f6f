"""The state dict of a graph: its modules' state and the training state, by parameter path."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from ..engine.tensor import Tensor
from ..engine.views import frozen
from ..errors import OnefoldRuntimeError, OnefoldTypeError
from ..optim.grad_scaler import StaticGradScaler
from ..optim.lr_scheduler import LRScheduler
from ..optim.optimizer import Group, Optimizer, kept, options_of, set_rate, with_numbers
from .module import Module

# What an optimizer's state is called after a parameter's path; other state keeps its own name.
SUFFIXES = {
    "momentum_buffer": "momentum",
    "exp_avg": "m",
    "exp_avg_sq": "v",
    "max_exp_avg_sq": "max_v",
    "square_avg": "mean_square",
    "grad_avg": "mean_gradient",
}
_KEYS = {suffix: key for key, suffix in SUFFIXES.items()}

# No attribute has a "-" in its name, so these are never those of a module.
STEP = "System-Train-TrainStep-"
GROUPS = "System-Train-ParamGroups-"
RATES = "System-Train-LRScheduler-"
SCALER = "System-Train-GradScaler-"

StateDict: TypeAlias = dict[str, Any]  # tensors, and the numbers, options and dicts of training
Entries = dict[int, StateDict]  # the state of parameters, by their identities


@dataclass
class Parts:
    """The parts of a graph that have state."""

    name: str
    modules: Mapping[str, Module]
    optimizers: Sequence[tuple[Optimizer, LRScheduler | None]]
    scaler: StaticGradScaler | None
    steps: int  # how many calls have trained

    @property
    def schedules(self) -> list[LRScheduler]:
        return [schedule for _, schedule in self.optimizers if schedule is not None]

    def trained(self) -> Iterator[tuple[int, int, Tensor]]:
        """Every parameter of the optimizers, with the numbers of its optimizer and group."""
        for number, (optim, _) in enumerate(self.optimizers):
            for index, group in enumerate(optim.param_groups):
                for param in group["params"]:
                    yield number, index, param

    def paths(self) -> dict[int, str]:
        """The path of each trained parameter, by its identity.

        Raises OnefoldRuntimeError for those that belong to no module.
        """
        found: dict[int, str] = {}
        for lead, module in self.modules.items():
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
                found.setdefault(id(tensor), f"{lead}.{name}")
        trained = list(self.trained())
        strangers = [each for each in trained if id(each[2]) not in found]
        if strangers:
            raise self._unknown(strangers, len(trained))
        return {id(param): found[id(param)] for _, _, param in trained}

    def paths_to(self) -> dict[str, Tensor]:
        """The trained parameters by their paths."""
        paths = self.paths()
        return {paths[id(param)]: param for _, _, param in self.trained()}

    def _unknown(
        self, strangers: Sequence[tuple[int, int, Tensor]], total: int
    ) -> OnefoldRuntimeError:
        listed = [
            f"one of shape {tuple(param.shape)} in group {group} of "
            f"{type(self.optimizers[number][0]).__name__} (optimizer {number})"
            for number, group, param in strangers[:5]
        ]
        more = f" and {len(strangers) - 5} more" if len(strangers) > 5 else ""
        modules = ", ".join(f"{name} ({type(m).__name__})" for name, m in self.modules.items())
        return OnefoldRuntimeError(
            f"{self.name}: {len(strangers)} of the optimizers' {total} parameters belong to no "
            f"module of this graph: {'; '.join(listed)}{more}. The graph's modules are: "
            f"{modules or 'none'}. Assign the module that has them to the graph (self.model = "
            "model); if one of its parameters was replaced, create a new optimizer and graph"
        )


def state_of(
    parts: Parts, destination: StateDict | None = None, *, keep_vars: bool = False
) -> StateDict:
    """Each module's state under its name, and the state of training; see `Graph.state_dict`.

    With `keep_vars` the tensors are those of the modules and optimizers themselves.
    """
    found: StateDict = {} if destination is None else destination
    entry_of = with_numbers if keep_vars else kept
    for name, module in parts.modules.items():
        state = module.state_dict(keep_vars=keep_vars).items()
        found[name] = {key: value if keep_vars else _snapshot(value) for key, value in state}
    if parts.optimizers:
        paths = parts.paths()
        for number, _, param in parts.trained():
            for key, value in entry_of(parts.optimizers[number][0].state.get(param, {})).items():
                found[f"{paths[id(param)]}-{SUFFIXES.get(key, key)}"] = value
        found[STEP + parts.name] = parts.steps
        found[GROUPS + parts.name] = [
            [options_of(group) for group in optim.param_groups] for optim, _ in parts.optimizers
        ]
    if parts.schedules:
        found[RATES + parts.name] = [schedule.state_dict() for schedule in parts.schedules]
    if parts.scaler is not None:
        found[SCALER + parts.name] = parts.scaler.state_dict()
    return found


def _snapshot(value: object) -> object:
    """A value of a module's state that later training does not change."""
    return frozen(value) if isinstance(value, Tensor) else copy.deepcopy(value)


def load_state(parts: Parts, state: Mapping[str, object], strict: bool) -> int:
    """Restore what `state_of` gave, all or nothing; returns how many calls have trained."""
    if not isinstance(state, Mapping):
        raise OnefoldTypeError(
            f"load_state_dict needs a dict as state_dict() gives it, but got {type(state).__name__}"
        )
    system, entries, modules = _sorted(parts, state, strict)
    steps = int(system.get(STEP, parts.steps))
    undo: list[Callable[[], None]] = []
    try:
        own = [optim.param_groups for optim, _ in parts.optimizers]
        given = _as_many(GROUPS, system, own) if GROUPS in system else own
        for (optim, _), groups in zip(parts.optimizers, given, strict=True):
            if STEP in system or entries:
                undo.append(undoing(optim))
                optim.load_state_dict(_numbered(parts, optim, groups, entries, steps))
        resumed: list[tuple[LRScheduler | StaticGradScaler, StateDict]] = []
        if RATES in system:
            resumed += zip(parts.schedules, _as_many(RATES, system, parts.schedules), strict=True)
        if SCALER in system:
            assert parts.scaler is not None
            resumed.append((parts.scaler, system[SCALER]))
        for part, saved in resumed:
            undo.append(partial(part.load_state_dict, part.state_dict()))
            part.load_state_dict(saved)
        flat = {f"{lead}.{key}": v for lead, inner in modules.items() for key, v in inner.items()}
        GraphModules(parts.modules).load_state_dict(flat, strict)
    except BaseException:
        for each in reversed(undo):
            each()
        raise
    return steps


class GraphModules(Module):
    """All modules of a graph as one, whose state is loaded as a whole or not at all."""

    def __init__(self, modules: Mapping[str, Module]) -> None:
        super().__init__()
        self._modules.update(modules)


def undoing(optim: Optimizer) -> Callable[[], None]:
    """A function that restores an optimizer to its current state."""
    state = optim.state
    groups = [(group, dict(group), options_of(group)) for group in optim.param_groups]

    def back() -> None:
        optim.state = state
        for group, before, options in groups:
            group.clear()
            group.update(before)
            if "lr" in group:
                set_rate(group, float(options["lr"]))

    return back


def _as_many(prefix: str, system: StateDict, own: Sequence[object]) -> Sequence[Any]:
    given: Sequence[Any] = system[prefix]
    if len(given) != len(own):
        raise OnefoldRuntimeError(
            f"load_state_dict: the graph has {len(own)} for {prefix.rstrip('-')}, but the given "
            f"state has {len(given)}; add as many to the graph as the graph that was saved had"
        )
    return given


def _numbered(
    parts: Parts, optim: Optimizer, groups: Sequence[Group], entries: Entries, steps: int
) -> StateDict:
    """The state dict for `optim.load_state_dict`.

    Raises OnefoldRuntimeError unless that is the state of such an optimizer.
    """
    who = f"load_state_dict: {type(optim).__name__}"
    state: dict[int, StateDict] = {}
    numbered = []
    number = 0
    if len(groups) != len(optim.param_groups):
        raise OnefoldRuntimeError(
            f"{who} has {len(optim.param_groups)} parameter groups, but the given state has "
            f"{len(groups)}; make the optimizer with the same groups"
        )
    paths = parts.paths()
    for given, own in zip(groups, optim.param_groups, strict=True):
        lacking = set(optim.defaults) - set(given)
        if lacking:
            raise OnefoldRuntimeError(
                f"{who} has the options {sorted(optim.defaults)}, but the given state has no "
                f"{sorted(lacking)}; it is that of another optimizer"
            )
        params = own["params"]
        for index, param in enumerate(params, number):
            entry = dict(entries.get(id(param), {}))
            if not entry:
                continue
            if "exp_avg" in entry:
                entry["step"] = int(entry.get("step", steps))
            wanted = optim.state_names({**own, **given})
            # What an option that was changed in training had kept is in the entry, too.
            if wanted is not None and (
                set(wanted) - set(entry) or (given is own and set(entry) - set(wanted))
            ):
                raise OnefoldRuntimeError(
                    f"{who} keeps {_suffixes(wanted)} of {paths[id(param)]}, but the given state "
                    f"has {_suffixes(entry)}; it is that of another optimizer"
                )
            state[index] = entry
        numbered.append({**given, "params": list(range(number, number + len(params)))})
        number += len(params)
    return {"state": state, "param_groups": numbered}


def _suffixes(keys: Iterable[str]) -> list[str]:
    return sorted("-" + SUFFIXES.get(key, key) for key in keys)


def _sorted(
    parts: Parts, state: Mapping[str, object], strict: bool
) -> tuple[StateDict, Entries, StateDict]:
    """The state taken apart: that of the graph, of the optimizers and of the modules.

    Raises OnefoldRuntimeError for missing and unknown keys, if `strict`.
    """
    system: StateDict = {}
    modules: StateDict = {}
    entries: Entries = {}
    unknown: list[str] = []
    trains = bool(parts.optimizers)
    kept = {STEP: trains, GROUPS: trains, RATES: parts.schedules, SCALER: parts.scaler is not None}
    wanted = [prefix for prefix, there in kept.items() if there]
    by_path = {path: number for number, path in parts.paths().items()}
    for key, value in state.items():
        prefix = next((each for each in kept if key.startswith(each)), None)
        path, dash, suffix = key.rpartition("-")
        if prefix is not None and prefix in wanted:
            system[prefix] = value  # whatever the graph was called that gave it
        elif key in parts.modules:
            modules[key] = value
        elif prefix is None and dash and path in by_path:
            entries.setdefault(by_path[path], {})[_KEYS.get(suffix, suffix)] = value
        else:
            unknown.append(key)
    # A checkpoint of OneFlow has the step and no more.
    missing = [f"{prefix}{parts.name}" for prefix in wanted if prefix not in system]
    missing = [key for key in missing if not key.startswith(GROUPS)]
    missing += [name for name in parts.modules if name not in modules]
    if strict and (missing or unknown):
        raise OnefoldRuntimeError(
            f"load_state_dict of {parts.name}: missing key(s) {missing}, unexpected key(s) "
            f"{unknown}; the graph has the modules {list(parts.modules)} and "
            f"{len(parts.optimizers)} optimizer(s). Pass strict=False to take what both have"
        )
    return system, entries, modules
