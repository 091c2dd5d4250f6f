"""State hooks: functions of users that are called when an optimizer's state is given or loaded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from torch.utils.hooks import RemovableHandle

from .step_hooks import Hook, StepHooks


class StateHooks(StepHooks):
    """The part of Optimizer that calls hooks around `state_dict` and `load_state_dict`."""

    def __init__(self) -> None:
        super().__init__()
        self._state_hooks: dict[str, OrderedDict[int, Hook]] = {}

    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before each `state_dict()`; returns what removes it."""
        return self._add_state_hook("state", hook, prepend)

    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` after each `state_dict()`.

        What it returns, unless None, is the result. `checkpoint.save` calls it, too.

        >>> import onefold as flow
        >>> sgd = flow.optim.SGD([flow.nn.Parameter(flow.ones(2))], lr=1.0)
        >>> handle = sgd.register_state_dict_post_hook(lambda sgd, state: {**state, "run": 3})
        >>> sgd.state_dict()["run"]
        3
        """
        return self._add_state_hook("given", hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Hook, prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before each `load_state_dict`, with a shallow copy.

        What it returns, unless None, is loaded.
        """
        return self._add_state_hook("load", hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Hook, prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer)` after each `load_state_dict`; returns what removes it."""
        return self._add_state_hook("loaded", hook, prepend)

    @property
    def has_state_hooks(self) -> bool:
        """Whether a hook may change what `state_dict()` gives."""
        return bool(self._hooks_of("state") or self._hooks_of("given"))

    def described_for_hooks(self, describe: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What `describe()` gives, and the hooks of `state_dict` make of it."""
        for hook in self._hooks_of("state"):
            hook(self)
        found = describe()
        for hook in self._hooks_of("given"):
            changed = hook(self, found)
            found = found if changed is None else changed
        return found

    def before_loading(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """What the hooks make of a state that is to be loaded."""
        hooks = self._hooks_of("load")
        found = dict(state_dict) if hooks else state_dict
        for hook in hooks:
            changed = hook(self, found)
            found = found if changed is None else changed
        return found

    def after_loading(self) -> None:
        """Call the hooks of a state that has been loaded."""
        for hook in self._hooks_of("loaded"):
            hook(self)

    def _hooks_of(self, moment: str) -> list[Hook]:
        # Without hooks in a wrapper that does not call Optimizer.__init__.
        return [*vars(self).get("_state_hooks", {}).get(moment, {}).values()]

    def _add_state_hook(self, moment: str, hook: Hook, prepend: bool) -> RemovableHandle:
        hooks = self._state_hooks.setdefault(moment, OrderedDict())
        handle = RemovableHandle(hooks)
        hooks[handle.id] = hook
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle
