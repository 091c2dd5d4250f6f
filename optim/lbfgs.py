"""LBFGS: a quasi-Newton method that evaluates the loss several times in a step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch

from ..engine import interpreter
from ..engine.argument_errors import with_argument_errors
from ..engine.commit import finish, wait_for_readers
from ..engine.inplace import fitted, note_written, writable
from ..engine.tensor import Tensor
from ..engine.values import from_torch, whole
from ..errors import OnefoldTypeError, OnefoldValueError
from .gradient_layouts import not_in_build
from .optimizer import Group, Optimizer, Params, State, rate_of
from .option_checks import check_options
from .strong_wolfe import Point, strong_wolfe
from .whole_values import distinct

CURVED = 1e-10  # a pair of steps and changes of the gradient that is not kept below this


class LBFGS(Optimizer):
    """Liu and Nocedal, "On the limited memory BFGS method" (1989).

    The arguments, the arithmetic and the state are torch's. `step` takes a closure that clears the
    gradients, computes the loss, calls backward() and returns the loss. All parameters are one
    vector, whose gradients every process gathers, with a history of up to `history_size` pairs of
    such vectors. There is one group of parameters. Raises OnefoldValueError for options out of
    range and for several groups.

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> optimizer = flow.optim.LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (w - 3).square().sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure).item(), w.numpy().round(4)
    (8.0, array([3., 3.], dtype=float32))
    """

    needs_closure = True
    numbers: ClassVar[frozenset[str]] = frozenset(("func_evals", "n_iter", "prev_loss"))

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_options("LBFGS", {"lr": lr})
        if line_search_fn not in (None, "strong_wolfe"):
            raise OnefoldValueError(
                f"LBFGS: line_search_fn must be 'strong_wolfe' or None, but got {line_search_fn!r}"
            )
        super().__init__(
            params,
            {
                "lr": lr,
                "max_iter": max_iter,
                "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                "tolerance_grad": tolerance_grad,
                "tolerance_change": tolerance_change,
                "history_size": history_size,
                "line_search_fn": line_search_fn,
            },
        )

    def add_param_group(self, group: Group) -> None:
        """Add the one group of parameters; raises OnefoldValueError for another."""
        if self.param_groups:
            raise OnefoldValueError(
                "LBFGS doesn't support per-parameter options (parameter groups); give it all "
                "parameters in one list"
            )
        super().add_param_group(group)
        self._params: list[Tensor] = self.param_groups[0]["params"]

    @with_argument_errors
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor:  # type: ignore[override]
        """Take up to `max_iter` steps; returns the first loss. Needs a closure."""
        not_in_build("optimizer.step()", "call it in eager mode")
        if closure is None:
            raise OnefoldTypeError(
                "LBFGS.step() needs a closure that clears the gradients, computes the loss, calls "
                "backward() and returns the loss"
            )
        values = self._values()
        state = {key: _kept(x) for key, x in self.state.get(self._params[0], {}).items()}
        try:
            try:
                run = partial(interpreter.in_grad_mode, True, closure)
                return interpreter.in_grad_mode(False, self._step_along, run)
            except BaseException:
                self._take_back(values, state)
                raise
        except KeyboardInterrupt:  # perhaps in the line above
            self._take_back(values, state)
            raise

    def _take_back(self, values: list[list[torch.Tensor]], state: State) -> None:
        """Restore parameters and state to those before a step."""
        self._restore(values)
        self.state.clear()
        if state:
            self.state[self._params[0]] = state

    def _step_along(self, run: Callable[[], Tensor]) -> Tensor:
        group = self.param_groups[0]
        state = self.state.setdefault(self._params[0], {})
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = run()
        loss, evaluations = float(first), 1
        state["func_evals"] += 1
        gradient = self._gradient()
        if _is_flat(gradient, group):
            return first
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = _direction(state, gradient, group["history_size"])
            state["prev_flat_grad"], state["prev_loss"] = gradient.clone(), loss
            t = float(rate_of(group))
            if state["n_iter"] == 1:
                t *= min(1.0, 1.0 / float(gradient.abs().sum()))
            slope = float(gradient.dot(direction))
            state["d"], state["t"] = direction, t
            if slope > -group["tolerance_change"]:
                break
            count, at_minimum = 0, False
            if group["line_search_fn"] is not None:
                start = Point(0, loss, gradient, slope)
                before = self._values()

                def evaluate(
                    t: float,
                    before: list[list[torch.Tensor]] = before,
                    direction: torch.Tensor = direction,
                ) -> tuple[float, torch.Tensor]:
                    self._move(direction, t)
                    value = float(run())
                    gradient = self._gradient()
                    self._restore(before)
                    return value, gradient

                point, count = strong_wolfe(
                    evaluate, start, direction, t, group["max_eval"] - evaluations
                )
                state["t"], loss, gradient = point.t, point.value, point.gradient
                self._move(direction, point.t)
                at_minimum = _is_flat(gradient, group)
            else:
                self._move(direction, t)
                if iteration != group["max_iter"]:
                    loss, count = float(run()), 1
                    gradient = self._gradient()
                    at_minimum = _is_flat(gradient, group)
            evaluations += count
            state["func_evals"] += count
            moved = (direction * state["t"]).abs().max()
            if (
                evaluations >= group["max_eval"]
                or at_minimum
                or moved <= group["tolerance_change"]
                or abs(loss - state["prev_loss"]) < group["tolerance_change"]
            ):
                break
        return first

    def _gradient(self) -> torch.Tensor:
        """All gradients as one vector, 0 where there is none."""
        found = []
        for param in self._params:
            grad = param.grad
            if grad is None:
                device = param.shards[0].device if param.shards else None
                found.append(torch.zeros(param.numel(), dtype=param.dtype, device=device))
            else:
                found.append(whole(grad).reshape(-1))
        return torch.cat(found)

    def _values(self) -> list[list[torch.Tensor]]:
        return [[part.clone() for part in param.shards] for param in self._params]

    def _restore(self, values: list[list[torch.Tensor]]) -> None:
        wait_for_readers()
        for param, parts in zip(self._params, values, strict=True):
            writable(param)
            for part, value in zip(param.shards, parts, strict=True):
                part.copy_(value)
        self._written()

    def _move(self, direction: torch.Tensor, t: float) -> None:
        """Add t times a direction to the parameters."""
        wait_for_readers()
        start = 0
        for param in self._params:
            way = direction[start : start + param.numel()].view(param.shape)
            start += param.numel()
            writable(param)
            for part, change in distinct(param, fitted(way, param)):
                part.add_(change, alpha=t)
        self._written()

    def _written(self) -> None:
        finish([partial(note_written, self._params)])

    # The state is torch's: vectors on this process, under the first parameter.

    def state_dict(self) -> dict[str, Any]:
        """The state by parameter number, with vectors as local tensors, and the options."""
        found = super().state_dict()
        return {**found, "state": {n: _given(entry) for n, entry in found["state"].items()}}

    def _loaded(self, key: str, value: object, param: Tensor) -> object:
        return _taken(value, param)


def _is_flat(gradient: torch.Tensor, group: Group) -> bool:
    return bool(gradient.abs().max() <= float(group["tolerance_grad"]))


def _direction(state: State, gradient: torch.Tensor, most: int) -> torch.Tensor:
    """The search direction: minus the approximate inverse Hessian times the gradient."""
    if state["n_iter"] == 1:
        state["old_dirs"], state["old_stps"], state["ro"], state["H_diag"] = [], [], [], 1
        return gradient.neg()
    changes, steps, inverses = state["old_dirs"], state["old_stps"], state["ro"]
    change = gradient - state["prev_flat_grad"]
    step = state["d"] * state["t"]
    curvature = change.dot(step)
    if curvature > CURVED:
        if len(changes) == most:
            for history in (changes, steps, inverses):
                history.pop(0)
        changes.append(change)
        steps.append(step)
        inverses.append(1.0 / curvature)
        state["H_diag"] = curvature / change.dot(change)
    found: torch.Tensor = gradient.neg()
    shares: list[torch.Tensor] = []
    for number in reversed(range(len(changes))):
        shares.append(steps[number].dot(found) * inverses[number])
        found.add_(changes[number], alpha=-float(shares[-1]))
    found = found * state["H_diag"]
    for number, share in enumerate(reversed(shares)):
        back = changes[number].dot(found) * inverses[number]
        found.add_(steps[number], alpha=float(share - back))
    return found


def _kept(value: Any) -> Any:
    """A part of a state, whose lists later steps change."""
    return list(value) if isinstance(value, list) else value


def _given(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _given(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_given(one) for one in value]
    return from_torch(value.clone()) if isinstance(value, torch.Tensor) else value


def _taken(value: Any, like: Tensor) -> Any:
    """A part of a state, on the device and in the dtype of a parameter."""
    if isinstance(value, list):
        return [_taken(one, like) for one in value]
    if isinstance(value, Tensor):
        value = whole(value)
    if not isinstance(value, torch.Tensor):
        return value
    device = like.shards[0].device if like.shards else value.device
    return value.to(device, like.dtype, copy=True)
