"""Step hooks: functions of users that are called before and after each step of an optimizer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar, cast

from torch.utils.hooks import RemovableHandle

from ..errors import OnefoldRuntimeError

F = TypeVar("F", bound=Callable[..., Any])
Hook = Callable[..., Any]


class StepHooks:
    """The part of Optimizer that calls hooks, also around a `step` that a subclass defines."""

    _hooks_running = False  # so that a step inside a step has none

    def __init__(self) -> None:
        self._step_pre_hooks: OrderedDict[int, Hook] = OrderedDict()
        self._step_post_hooks: OrderedDict[int, Hook] = OrderedDict()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if isinstance(own := vars(cls).get("step"), FunctionType):
            cls.step = hooked(own)  # type: ignore[attr-defined]

    @property
    def has_step_hooks(self) -> bool:
        fields = vars(self)  # without hooks in a wrapper that does not call Optimizer.__init__
        return bool(fields.get("_step_pre_hooks") or fields.get("_step_post_hooks"))

    def register_step_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each eager step; returns what removes it.

        It gets the arguments of `step`, the optimizer first, and may return others, as a pair. A
        graph that has such an optimizer raises OnefoldRuntimeError.

        >>> import onefold as flow
        >>> sgd = flow.optim.SGD([flow.nn.Parameter(flow.ones(2))], lr=1.0)
        >>> handle = sgd.register_step_pre_hook(lambda optimizer, args, kwargs: print("step"))
        >>> sgd.step()
        step
        >>> handle.remove()
        """
        return _registered(self._step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each eager step; returns what removes it.

        It is called for a step that a scaler skips, too, which the host does not know. A graph that
        has such an optimizer raises OnefoldRuntimeError.

        >>> import onefold as flow
        >>> sgd = flow.optim.SGD([flow.nn.Parameter(flow.ones(2))], lr=1.0)
        >>> handle = sgd.register_step_post_hook(lambda optimizer, args, kwargs: print("done"))
        >>> sgd.step()
        done
        """
        return _registered(self._step_post_hooks, hook)

    def with_step_hooks(
        self, step: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """`step(*args, **kwargs)`, in which the optimizer is the first, and the hooks around it."""
        if self._hooks_running or not self.has_step_hooks:
            return step(*args, **kwargs)
        self._hooks_running = True
        try:
            for hook in [*self._step_pre_hooks.values()]:
                given = hook(self, args, kwargs)
                if given is not None:
                    args, kwargs = _pair(given)
            result = step(*args, **kwargs)
            for hook in [*self._step_post_hooks.values()]:
                hook(self, args, kwargs)
            return result
        finally:
            self._hooks_running = False


def hooked(step: F) -> F:
    """A method `step` that calls the hooks of its optimizer (a decorator)."""

    @wraps(step)
    def call(self: StepHooks, *args: Any, **kwargs: Any) -> Any:
        return self.with_step_hooks(step, (self, *args), kwargs)

    return cast(F, call)


def _registered(hooks: OrderedDict[int, Hook], hook: Hook) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def _pair(given: object) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if not isinstance(given, tuple) or len(given) != 2:
        raise OnefoldRuntimeError(
            "a hook of register_step_pre_hook must return None or a tuple of (new_args, "
            f"new_kwargs), but returned {given!r}"
        )
    return given
