"""Optimizer: parameter groups, state, and what all update rules share."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import copy_context
from functools import partial
from itertools import islice
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, TypeVar, overload

import numpy as np
import torch
from torch.optim.optimizer import required

from ..engine import interpreter
from ..engine.argument_errors import check_types, with_argument_errors
from ..engine.captures import waited
from ..engine.commit import Change, Write, finish
from ..engine.grad_mode import no_grad
from ..engine.inplace import fill_, note_written, writable
from ..engine.ops.cast import clone
from ..engine.ops.like import zeros_like
from ..engine.tensor import Tensor, from_shards
from ..errors import OnefoldError, OnefoldNotImplementedError, OnefoldTypeError, OnefoldValueError
from ..graph.setting_checks import integer, switch
from .clip import clip_gradients
from .device_scalar import DeviceScalar, Given
from .gradient_layouts import aligned, are_aligned, not_in_build, with_gradients
from .loaded_state import loaded_as, loaded_freely
from .named_params import check_alike, without_names
from .option_checks import check_options
from .replica_schedule import ReplicaSchedule
from .state_hooks import StateHooks
from .state_layouts import lay_states
from .step_hooks import hooked
from .zero_redundancy import ZeroRedundancy

T = TypeVar("T")
Group: TypeAlias = dict[str, Any]  # parameters under "params", and options by name
State: TypeAlias = dict[str, Any]  # tensors by name, and the number of steps
Params: TypeAlias = Iterable[Tensor] | Iterable[Group] | Iterable[tuple[str, Tensor]]
ParamsT = Params  # torch's name


class Part(NamedTuple):
    """Parameters of a group that are updated together, with an entry for each in every column."""

    group: Group
    params: Sequence[Tensor]
    grads: Sequence[Tensor]  # laid out as the parameters are
    states: Sequence[State]  # each empty before the first step
    given: Given
    copies: Sequence[Tensor | None] = ()  # in half precision, to be written with the parameters

    def only(self, indices: Sequence[int]) -> Part:
        """The part with the parameters that have these indices."""
        if len(indices) == len(self.params):
            return self
        return self._replace(
            params=[self.params[i] for i in indices],
            grads=[self.grads[i] for i in indices],
            states=[self.states[i] for i in indices],
            copies=[self.copies[i] for i in indices if self.copies],
        )

    def by_copies(self) -> Iterator[Part]:
        """The parameters that have a copy, and those that have none."""
        if not self.copies:
            yield self
            return
        for has in (True, False):
            mine = [i for i, copy in enumerate(self.copies) if (copy is not None) is has]
            if mine:
                yield self.only(mine) if has else self.only(mine)._replace(copies=())


class Optimizer(StateHooks):
    """The base of the update rules; subclasses give `_update`.

    `params` is an iterable of tensors, or of pairs of a name and a tensor, or of dicts with
    "params" and options of their own; the names become the group's "param_names". Besides its
    options a group may have "lr_scale" (multiplies lr), "clip_grad_max_norm" and
    "clip_grad_norm_type" (used by `clip_grad`). "lr" may be a local 0-d tensor, which schedules
    write into; groups that share one have one rate.
    """

    numbers: ClassVar[frozenset[str]] = frozenset(("step",))  # what in states is no tensor
    writes_copies: ClassVar[bool] = False  # whether updates write `Part.copies`
    needs_closure: ClassVar[bool] = False  # whether a step evaluates the loss again

    def __init__(self, params: Params, defaults: Group) -> None:
        super().__init__()
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self.state: defaultdict[Any, Any] = defaultdict(dict)
        self._zero: ZeroRedundancy | None = None
        self.replicas = ReplicaSchedule(getattr(params, "module", None))
        if isinstance(params, (Tensor, set)):
            raise OnefoldTypeError(
                "params must be an ordered iterable of tensors or dicts, but got one "
                f"{type(params).__name__}; write [tensor], or module.parameters()"
            )
        groups: list[Any] = list(params)
        if not groups:
            raise OnefoldValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    @with_argument_errors
    def add_param_group(self, group: Group) -> None:
        """Add a group of parameters with options of its own."""
        given_group: object = group
        if not isinstance(given_group, dict) or "params" not in group:
            raise OnefoldTypeError("a param group must be a dict with the key 'params'")
        given = group["params"]
        if isinstance(given, set):
            raise OnefoldTypeError(
                "params must be ordered, so that all processes step alike, but got a set; pass a "
                "list"
            )
        params, names = without_names([given] if isinstance(given, Tensor) else list(given))
        known = {id(p) for other in self.param_groups for p in other["params"]}
        for param in params:
            if not isinstance(param, Tensor):
                raise OnefoldTypeError(
                    f"optimizer can only optimize Tensors, but one of the params is "
                    f"{type(param).__name__}"
                )
            if not param.is_leaf:
                raise OnefoldValueError("can't optimize a non-leaf Tensor")
            if id(param) in known:
                raise OnefoldValueError("some parameters appear in more than one parameter group")
            known.add(id(param))
        if not params:
            raise OnefoldValueError("optimizer got an empty parameter list")
        made = {**self.defaults, **group, "params": params}
        if names is not None:
            made["param_names"] = names
        missing = [key for key, value in made.items() if value is required]
        if missing:
            raise OnefoldValueError(
                f"{type(self).__name__}: a parameter group gives no {missing[0]!r}, which has no "
                "default; pass it to the optimizer, or in the group"
            )
        check_alike(made, self.param_groups)
        self._check_options(made)
        _check_rate(made.get("lr"))
        self.param_groups.append(made)
        if self._zero is not None:
            self._zero.watch(params)

    def _check_options(self, options: Group) -> None:
        if not self.has_rule:  # a user's class, whose options mean what they mean there
            return
        own = {key: value for key, value in options.items() if key != "params"}
        check_types(type(self).__name__, type(self).__init__, own)
        if "betas" in own:
            check_options(type(self).__name__, {"betas": own["betas"]})

    def enable_zero(self, mode: bool = True, *, stage: int = 2, shard_min_size: int = 1024) -> Self:
        """Split the optimizer state of broadcast parameters over their ranks; returns itself.

        Stage 1 splits the state: each rank updates its shards, which are gathered when the step
        ends. In stage 2 each gradient is also reduced to shards as soon as backward has made it.
        The state stays global: `state_dict()` has logical values. Parameters whose shards would
        have fewer than `shard_min_size` elements stay as they are. Stage 3 is `module.shard_()`,
        and a graph has `config.enable_zero`. Raises OnefoldValueError for an optimizer that
        evaluates the loss again. Rajbhandari et al., "ZeRO" (2020).

        >>> import onefold as flow
        >>> p = flow.placement("cpu", [0, 1])
        >>> layer = flow.nn.Linear(64, 64).to_global(p, flow.sbp.broadcast)
        >>> adam = flow.optim.Adam(layer.parameters()).enable_zero(stage=1)
        >>> layer(flow.ones(4, 64, placement=p, sbp=flow.sbp.split(0))).sum().backward()
        >>> adam.step()
        >>> layer.weight.sbp, adam.state[layer.weight]["exp_avg"].sbp
        ((onefold.sbp.broadcast,), (onefold.sbp.split(dim=0),))
        """
        switch("enable_zero: mode", mode)
        advice = "; stage 3 is module.shard_()"
        integer("enable_zero: stage", stage, least=1, most=2, advice=advice)
        integer("enable_zero: shard_min_size", shard_min_size, least=1)
        if self.needs_closure:
            raise OnefoldValueError(
                f"enable_zero: {type(self).__name__} moves all parameters together, and cannot "
                "update them in shards; use another optimizer, or module.shard_()"
            )
        if self._zero is not None:
            self._zero.active = False
        self._zero = ZeroRedundancy(stage, shard_min_size) if mode else None
        if self._zero is not None:
            for group in self.param_groups:
                self._zero.watch(group["params"])
        return self

    @with_argument_errors
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset all gradients to None, or to zero."""
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    param.grad = None if set_to_none else zeros_like(param.grad)

    def clip_grad(self, error_if_nonfinite: bool = False) -> None:
        """Clip the gradients of every group that has "clip_grad_max_norm"."""
        not_in_build("optimizer.clip_grad()", "a graph's call clips what such groups update")
        for group in self.param_groups:
            if group.get("clip_grad_max_norm") is not None:
                clip_gradients(
                    group["params"],
                    group["clip_grad_max_norm"],
                    group.get("clip_grad_norm_type", 2.0),
                    error_if_nonfinite,
                )

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], T]) -> T: ...
    @hooked
    @with_argument_errors
    def step(self, closure: Callable[[], T] | None = None) -> T | None:
        """Update every parameter that has a gradient; returns what `closure` returns.

        Gradients are first boxed to their parameters' layouts, all together; they stay so.
        """
        not_in_build(
            "optimizer.step()", "self.add_optimizer(optimizer) lets every call end with it"
        )
        result = None
        if closure is not None:
            result = interpreter.in_grad_mode(True, closure)
        self.step_by(Given())
        return result

    def step_by(self, given: Given, last: Iterable[Write] = ()) -> None:
        """`step` with numbers that stay on the device, such as whether it is skipped.

        An interrupt leaves all as it was before, or as it is after, when `last` is done too.
        """
        step = partial(copy_context().run, self._step, given, last)
        if (current := interpreter.get_current()) is None:
            try:
                step()
            except OnefoldError as error:  # which changed nothing
                params = [param for group in self.param_groups for param in group["params"]]
                if not waited(error, params):
                    raise
                self.step_by(given, last)
                return
        else:
            current.step_optimizer(self, step)
        self.replicas.after_step(self)

    def lay_gradients(self) -> list[tuple[list[Tensor], list[Tensor]]]:
        """The parameters of each group that have a gradient, and the gradients in their layouts.

        Gradients are boxed all together, and stay so.
        """
        chosen = [with_gradients(group["params"]) for group in self.param_groups]
        if self._zero is None and all(are_aligned(*pair) for pair in chosen):
            return chosen
        params = [param for params, _ in chosen for param in params]
        grads = [grad for _, grads in chosen for grad in grads]
        laid = (aligned if self._zero is None else self._zero.aligned)(params, grads)
        for param, grad, before in zip(params, laid, grads, strict=True):
            if grad is not before:
                param.grad = grad
        rest = iter(laid)
        return [(params, list(islice(rest, len(params)))) for params, _ in chosen]

    def _step(self, given: Given, last: Iterable[Write]) -> None:
        """The step, in a context of its own; see `interpreter.in_grad_mode`."""
        interpreter.set_grad_enabled(False)
        zero = self._zero
        writes: deque[Write] = deque()
        written: list[Tensor] = []
        for group, (params, grads) in zip(self.param_groups, self.lay_gradients(), strict=True):
            if params:
                parts = params
                if zero is not None:
                    parts, grads = zero.split(params, grads)
                for part in parts:
                    writable(part)
                own = Given(rate_of(group), given.scale, given.found_inf)
                writes.extend(self.apply(group, params, parts, grads, own))
                if zero is not None:
                    writes.append(partial(zero.gather, params, parts))
                written += params
        writes.append(partial(note_written, written))
        writes.extend(last)
        finish(writes)

    def apply(
        self,
        group: Group,
        owners: Sequence[Tensor],
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        given: Given,
        copies: Sequence[Tensor | None] = (),
    ) -> list[Write]:
        """The update of the parameters of a group in place, in memory that is not shared.

        `params` are the values to update, laid out as `grads` are: the `owners` of the state
        themselves, or in a graph perhaps other layouts of them. `copies` take the new values, too.
        """
        states = [self.state.get(owner) or {} for owner in owners]
        self._lay_state(params, states)
        fresh = [index for index, state in enumerate(states) if not state]
        writes = list(self._update(Part(group, params, grads, states, given, copies)))
        if fresh:
            pairs = [(owners[index], states[index]) for index in fresh]
            writes.append(partial(self._keep, pairs))
        return writes

    def _keep(self, states: Sequence[tuple[Tensor, State]]) -> list[Change]:
        """Keep the states of parameters that were updated for the first time."""
        # An empty one: the first step was skipped, or nothing is kept.
        return [partial(self.state.__setitem__, *pair) for pair in states if pair[1]]

    @staticmethod
    def _lay_state(params: Sequence[Tensor], states: Sequence[State]) -> None:
        lay_states(params, states)

    def _update(self, part: Part) -> Iterable[Write]:
        """The change of the parameters, and the state of each; see `engine/commit.py`."""
        raise OnefoldNotImplementedError(f"step: {type(self).__name__} needs _update(part)")

    # State.

    def state_names(self, group: Group) -> tuple[str, ...] | None:
        """The names of the state of each parameter in a group; None: not known."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """The state by parameter number, and the groups' options."""
        return self.described_for_hooks(partial(self._described, kept))

    def _described(self, entry_of: Callable[[State], State]) -> dict[str, Any]:
        """The result of `state_dict`, with `entry_of` applied to each parameter's state."""
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for param in group["params"]:
                numbers[id(param)] = len(numbers)
            packed = options_of(group)
            packed["params"] = [numbers[id(param)] for param in group["params"]]
            groups.append(packed)
        entries = {numbers.get(id(key), key): entry for key, entry in self.state.items()}
        found = [number for number in range(len(numbers)) if entries.get(number)]
        state: dict[Any, Any] = {number: entry_of(entries[number]) for number in found}
        state.update((key, x) for key, x in entries.items() if isinstance(key, str))
        return {"state": state, "param_groups": groups}

    @with_argument_errors
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` gave; raises OnefoldValueError when groups do not match."""
        state_dict = self.before_loading(state_dict)
        lacking = {"state", "param_groups"} - set(state_dict)
        if lacking:
            raise OnefoldValueError(
                f"load_state_dict: the state of an optimizer has 'state' and 'param_groups', but "
                f"the given one lacks {sorted(lacking)}; load what state_dict() gave"
            )
        groups = state_dict["param_groups"]
        mine = [len(group["params"]) for group in self.param_groups]
        theirs = [len(group["params"]) for group in groups]
        if mine != theirs:
            raise OnefoldValueError(
                "loaded state dict has other parameter groups: this optimizer has groups of "
                f"{mine} parameters, the state has {theirs}"
            )
        params = [param for group in self.param_groups for param in group["params"]]
        numbers = [number for group in groups for number in group["params"]]
        names = [
            self.state_names({**group, **given})
            for group, given in zip(self.param_groups, groups, strict=True)
            for _ in group["params"]
        ]
        state: defaultdict[Any, Any] = defaultdict(dict)
        for param, number, known in zip(params, numbers, names, strict=True):
            entry = state_dict["state"].get(number)
            if entry is not None:
                state[param] = {
                    key: self._loaded(key, value, param)
                    for key, value in entry.items()
                    if known is None or key in known or key != "step"  # torch counts them always
                }
        for key, entry in state_dict["state"].items():
            if isinstance(key, str):  # a subclass's own
                state[key] = entry
        for given in groups:
            self._check_options(given)
        changes = [options_of(given) for given in groups]
        rates = [
            float(options.pop("lr"))
            if isinstance(group.get("lr"), Tensor) and "lr" in options else None
            for group, options in zip(self.param_groups, changes, strict=True)
        ]  # fmt: skip
        self.state = state
        for group, options, rate in zip(self.param_groups, changes, rates, strict=True):
            if rate is not None:
                set_rate(group, rate)
            group.update(options)
        self.after_loading()

    def _loaded(self, key: str, value: object, param: Tensor) -> object:
        """A value of a parameter's loaded state, perhaps torch's, in the form kept here."""
        if not self.has_rule:
            return loaded_freely(key, value, param)
        if key in self.numbers and isinstance(value, (Tensor, torch.Tensor, np.ndarray)):
            number = float(value)
            return int(number) if key == "step" else number
        if isinstance(value, str):
            raise OnefoldTypeError(
                f"load_state_dict: {key!r} of a parameter must be a tensor or a number, but the "
                f"given state has {value!r}"
            )
        return loaded_as(value, param)

    @property
    def has_rule(self) -> bool:
        """Whether `step` is this class's, by an update rule that keeps numbers on the device."""
        return type(self)._update is not Optimizer._update

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for index, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {index}")
            for key in sorted(key for key in group if key != "params"):
                lines.append(f"    {key}: {group[key]}")
        return "\n".join([*lines, ")"])


def kept(entry: State) -> State:
    """A copy of a parameter's state to keep; its numbers are read."""
    numbers = with_numbers(entry).items()
    return {key: clone(x) if isinstance(x, Tensor) else x for key, x in numbers}


def with_numbers(entry: State) -> State:
    """A parameter's state with its own tensors; its numbers are read."""
    return {key: int(x) if isinstance(x, DeviceScalar) else x for key, x in entry.items()}


def options_of(group: Group) -> Group:
    """The options of a group to keep; a rate that is a tensor is read."""
    found = {key: value for key, value in group.items() if key != "params"}
    if isinstance(found.get("lr"), Tensor):
        found["lr"] = float(found["lr"])
    return found


def rate_of(group: Group) -> float | torch.Tensor:
    """The learning rate of a group."""
    lr = group.get("lr", 0.0)  # not every rule has one
    if isinstance(lr, Tensor):
        lr = lr.shards[0]
    return lr * group.get("lr_scale", 1.0)  # type: ignore[no-any-return]


@no_grad
def set_rate(group: Group, rate: float) -> None:
    """Set the learning rate of a group; a rate that is a tensor is written in place."""
    if isinstance(group["lr"], Tensor):
        fill_(group["lr"], rate)
    else:
        group["lr"] = rate


def _check_rate(lr: object) -> None:
    if isinstance(lr, Tensor) and (lr.is_global or lr.shape != () or not lr.meta.is_floating):
        raise OnefoldValueError(
            f"a learning rate that is a tensor must be a local floating 0-d one, but got {lr!r}"
        )


def zeros_for(param: Tensor) -> Tensor:
    """Zeros in the layout of the parameter; replicas of a virtual world share memory."""
    unique = {id(part): torch.zeros_like(part) for part in param.shards}
    return from_shards(tuple([unique[id(part)] for part in param.shards]), param.meta)
