"""Optimizer: parameter groups, state, and what all update rules share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch

from ..engine import interpreter
from ..engine.convert import box
from ..engine.grad_mode import enable_grad, no_grad
from ..engine.inplace import changed, fill_, fitted, take, writable
from ..engine.ops.cast import clone
from ..engine.ops.like import zeros_like
from ..engine.tensor import Tensor
from ..errors import OnefoldTypeError, OnefoldValueError
from .clip import clip_gradients
from .device_scalar import DeviceScalar, Given
from .gradient_layouts import aligned, not_in_build

Group = dict[str, Any]


class Optimizer:
    """The base of the update rules; subclasses give `_update`.

    `params` is an iterable of tensors, or of dicts with "params" and options of their own. Besides
    its options a group may have "lr_scale" (multiplies lr), "clip_grad_max_norm" and
    "clip_grad_norm_type" (used by `clip_grad`). "lr" may be a local 0-d tensor, which schedules
    write into; groups that share one have one rate.
    """

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self.state: dict[Tensor, dict[str, Any]] = {}
        if isinstance(params, (Tensor, set)):
            raise OnefoldTypeError(
                "params must be an ordered iterable of tensors or dicts, but got one "
                f"{type(params).__name__}; write [tensor], or module.parameters()"
            )
        groups = list(params)
        if not groups:
            raise OnefoldValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, group: Any) -> None:
        """Add a group of parameters with options of its own."""
        if not isinstance(group, dict) or "params" not in group:
            raise OnefoldTypeError("a param group must be a dict with the key 'params'")
        given = group["params"]
        if isinstance(given, set):
            raise OnefoldTypeError(
                "params must be ordered, so that all processes step alike, but got a set; pass a "
                "list"
            )
        params = [given] if isinstance(given, Tensor) else list(given)
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
        _check_rate(made.get("lr"))
        self.param_groups.append(made)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or set them to zero."""
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

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; returns what `closure` returns.

        Gradients are first boxed to their parameters' layouts, all together; they stay so.
        """
        not_in_build(
            "optimizer.step()", "self.add_optimizer(optimizer) lets every call end with it"
        )
        result = None
        if closure is not None:
            with enable_grad():
                result = closure()
        self.update(Given())
        return result

    @no_grad
    def update(self, given: Given) -> None:
        """What `step` does, with numbers that stay on the device."""
        chosen = [[p for p in g["params"] if p.grad is not None] for g in self.param_groups]
        boxed = iter(aligned([param for params in chosen for param in params]))
        found = [list(islice(boxed, len(params))) for params in chosen]
        for params, grads in zip(chosen, found, strict=True):
            for param, grad in zip(params, grads, strict=True):
                if grad is not param.grad:
                    param.grad = grad
        for group, params, grads in zip(self.param_groups, chosen, found, strict=True):
            if params:
                for param in params:
                    writable(param)
                self.apply(group, params, params, grads, replace(given, lr=rate_of(group)))
                now = interpreter.stamp()
                for param in params:
                    param.version = now
                changed(params)

    def apply(
        self,
        group: Group,
        owners: Sequence[Tensor],
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        given: Given,
    ) -> None:
        """Update the parameters of a group in their memory, which is theirs alone.

        `params` are the values to update, laid out as `grads` are: the `owners` of the state
        themselves, or in a graph perhaps other layouts of them.
        """
        if self.state_names(group) == ():
            self._update(group, params, grads, [{} for _ in params], given)
            return
        states = [self.state.setdefault(owner, {}) for owner in owners]
        self._lay_state(params, states)
        try:
            self._update(group, params, grads, states, given)
        finally:
            for owner, state in zip(owners, states, strict=True):
                if not state:  # the first step was skipped
                    del self.state[owner]

    @staticmethod
    def _lay_state(params: Sequence[Tensor], states: Sequence[dict[str, Any]]) -> None:
        """Lay the state out as the parameters are, whose layouts may have changed since."""
        for param, state in zip(params, states, strict=True):
            if param.meta.placement is None:
                continue
            for key, value in state.items():
                if isinstance(value, Tensor) and value.meta is not param.meta:
                    state[key] = _laid_as(value, param)
            if len(param.shards) > 1:
                _match_replicas(param, state.values())

    def _update(
        self,
        group: Group,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[dict[str, Any]],
        given: Given,
    ) -> None:
        """Change the parameters, and the state of each, which is empty before the first step."""
        who = type(self).__name__
        raise NotImplementedError(f"{who} needs _update(group, params, grads, states, given)")

    # State.

    def state_names(self, group: Group) -> tuple[str, ...] | None:
        """What is kept of each parameter of a group that was updated; None: not known."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """The state by parameter number, and the groups' options."""
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for param in group["params"]:
                numbers[id(param)] = len(numbers)
            packed = options_of(group)
            packed["params"] = [numbers[id(param)] for param in group["params"]]
            groups.append(packed)
        state = {numbers[id(param)]: kept(entry) for param, entry in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` gave; raises OnefoldValueError when groups do not match."""
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
        state: dict[Tensor, dict[str, Any]] = {}
        for param, number in zip(params, numbers, strict=True):
            entry = state_dict["state"].get(number)
            if entry is not None:
                state[param] = {key: _like(value, param) for key, value in entry.items()}
        self.state = state
        for group, given in zip(self.param_groups, groups, strict=True):
            options = options_of(given)
            if isinstance(group.get("lr"), Tensor) and "lr" in options:
                set_rate(group, float(options.pop("lr")))
            group.update(options)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for index, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {index}")
            for key in sorted(key for key in group if key != "params"):
                lines.append(f"    {key}: {group[key]}")
        return "\n".join([*lines, ")"])


def kept(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a parameter's state, to be kept: its numbers are read."""
    found: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, DeviceScalar):
            value = int(value)
        found[key] = clone(value) if isinstance(value, Tensor) else value
    return found


def options_of(group: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a group, to be kept: a rate that is a tensor is read."""
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
    """Give a group its learning rate; a tensor takes it and stays the same tensor."""
    if isinstance(group["lr"], Tensor):
        fill_(group["lr"], rate)
    else:
        group["lr"] = rate


def _check_rate(lr: Any) -> None:
    if isinstance(lr, Tensor) and (lr.is_global or lr.shape != () or not lr.meta.is_floating):
        raise OnefoldValueError(
            f"a learning rate that is a tensor must be a local floating 0-d one, but got {lr!r}"
        )


def _like(value: Any, param: Tensor) -> Any:
    """A loaded value of the state: a tensor is laid out as the parameter, in memory of its own."""
    if not isinstance(value, (Tensor, torch.Tensor, np.ndarray)):
        return value
    duplicate = Tensor((), param.meta)
    take(duplicate, fitted(value, param))
    writable(duplicate)
    return duplicate


def _laid_as(value: Tensor, param: Tensor) -> Tensor:
    """A tensor of the state in the parameter's layout, unless it is of another shape."""
    target = param.meta.like(dtype=value.dtype)
    if value.shape != param.shape or value.meta is target:
        return value
    moved = Tensor(box(value, target).shards, target)
    moved.shared = True  # perhaps a view, which would keep all of the old memory
    writable(moved)
    return moved


def _match_replicas(param: Tensor, state: Iterable[Any]) -> None:
    """Let state be one tensor exactly where the parameter is, since both are updated together.

    In a virtual world replicas may be one tensor or several, depending on how they were made.
    """
    wanted = _firsts(param)
    for value in state:
        if isinstance(value, Tensor) and value.shape == param.shape and _firsts(value) != wanted:
            form = torch.contiguous_format
            made = {i: value.shards[i].clone(memory_format=form) for i in set(wanted)}
            value.shards = tuple([made[i] for i in wanted])


def _firsts(tensor: Tensor) -> list[int]:
    """For each shard, the number of the first that is the same tensor."""
    found: dict[int, int] = {}
    return [found.setdefault(id(part), index) for index, part in enumerate(tensor.shards)]


def zeros_for(param: Tensor) -> Tensor:
    """State of zeros laid out as the parameter; replicas of a virtual world share memory."""
    unique = {id(part): torch.zeros_like(part) for part in param.shards}
    return Tensor(tuple([unique[id(part)] for part in param.shards]), param.meta)


def unique_shards(*columns: Sequence[Tensor]) -> list[list[list[torch.Tensor]]]:
    """For tensors that belong together, the lists of their distinct local shards, in step.

    One set of lists for each device and dtype, as the kernels need, made contiguous. The first
    column decides what is distinct: replicas of a virtual world are updated once.
    """
    only = [tensor.shards[0] for tensor in columns[0] if len(tensor.shards) == 1]
    if len(only) == len(columns[0]) and len({(part.device, part.dtype) for part in only}) == 1:
        return [[[tensor.shards[0].contiguous() for tensor in column] for column in columns]]
    alike: dict[Any, list[list[torch.Tensor]]] = {}
    for row in zip(*columns, strict=True):
        seen: set[int] = set()
        for index, part in enumerate(row[0].shards):
            if id(part) not in seen:
                seen.add(id(part))
                key = (part.device, part.dtype)
                lists = alike.setdefault(key, [[] for _ in columns])
                for found, tensor in zip(lists, row, strict=True):
                    found.append(tensor.shards[index].contiguous())
    return list(alike.values())
