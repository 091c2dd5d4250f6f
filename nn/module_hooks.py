"""The hooks of a module's call: before and after forward, and at its gradients."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from torch.utils.hooks import RemovableHandle

from ..errors import OnefoldRuntimeError, warn
from .backward_hooks import BackwardHooks
from .gathered_parameters import Gather, gathered
from .module_state import Hook, Hooks, State, add_hook


class _Everywhere:
    """The hooks of all modules, which are called before those of a module itself."""

    def __init__(self) -> None:
        self.before: Hooks = OrderedDict()
        self.after: Hooks = OrderedDict()
        self.backward: Hooks = OrderedDict()
        self.backward_pre: Hooks = OrderedDict()
        self.with_kwargs: OrderedDict[int, bool] = OrderedDict()
        self.always: OrderedDict[int, bool] = OrderedDict()

    def tables(self) -> tuple[Hooks, ...]:
        return self.before, self.after, self.backward, self.backward_pre


_EVERYWHERE = _Everywhere()


class Hooked(State):
    """The part of Module that calls hooks."""

    _hook_tables = (
        *State._hook_tables,
        "_forward_pre_hooks",
        "_forward_pre_hooks_with_kwargs",
        "_forward_hooks",
        "_forward_hooks_with_kwargs",
        "_forward_hooks_always_called",
        "_backward_pre_hooks",
        "_backward_hooks",
    )

    _has_hooks = False  # whether a forward or backward hook was ever registered
    _reads_children = False  # whether forward reads submodules' parameters and does not call them
    _weight_gathers: tuple[Gather, ...] = ()  # parameters that are gathered for each call

    def _add_hook(self, hooks: Hooks, hook: Hook, *how: Any) -> RemovableHandle:
        self.__dict__["_has_hooks"] = True
        return add_hook(hooks, hook, *how)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f'{type(self).__name__} is missing the required "forward"')

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` before forward; what it returns replaces the arguments.

        With `with_kwargs` it is `hook(module, args, kwargs)`, which returns a pair of both or None.
        """
        flags = [self._forward_pre_hooks_with_kwargs] if with_kwargs else []
        return self._add_hook(self._forward_pre_hooks, hook, prepend, flags)

    def register_forward_hook(
        self,
        hook: Hook,
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call `hook(module, args, result)` after forward; what it returns replaces the result.

        With `with_kwargs` it is `hook(module, args, kwargs, result)`. With `always_call` it is
        also called, with None as the result, when something raised an error.
        """
        flags = [self._forward_hooks_with_kwargs] if with_kwargs else []
        flags += [self._forward_hooks_always_called] if always_call else []
        return self._add_hook(self._forward_hooks, hook, prepend, flags)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` when the gradients of inputs are computed.

        Both are tuples, with None for what is no tensor; keyword arguments are left out. What the
        hook returns replaces `grad_input`.
        """
        return self._add_hook(self._backward_hooks, hook, prepend)

    register_backward_hook = register_full_backward_hook

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_output)` before backward; what it returns replaces the tuple."""
        return self._add_hook(self._backward_pre_hooks, hook, prepend)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._weight_gathers:
            return self._call_between_hooks(args, kwargs)
        with gathered(self._weight_gathers):
            return self._call_between_hooks(args, kwargs)

    def _call_between_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        called: set[int] = set()
        everywhere = _EVERYWHERE
        if Hooked._has_hooks and not any(everywhere.tables()):
            Hooked._has_hooks = False
        try:
            for number, hook in [*everywhere.before.items(), *self._forward_pre_hooks.items()]:
                args, kwargs = self._run_pre_hook(number, hook, args, kwargs)
            hooks = (
                [*everywhere.backward.values(), *self._backward_hooks.values()],
                [*everywhere.backward_pre.values(), *self._backward_pre_hooks.values()],
            )
            backward = BackwardHooks(self, *hooks) if any(hooks) else None
            if backward is not None:
                args = backward.inputs(args)
            result = self.forward(*args, **kwargs)
            for number, hook in [*everywhere.after.items(), *self._forward_hooks.items()]:
                called.add(number)
                changed = self._run_hook(number, hook, args, kwargs, result)
                if changed is not None:
                    result = changed
            return result if backward is None else backward.outputs(result)
        except Exception:
            always = {*self._forward_hooks_always_called, *everywhere.always}
            for number, hook in [*everywhere.after.items(), *self._forward_hooks.items()]:
                if number in always and number not in called:
                    try:
                        self._run_hook(number, hook, args, kwargs, None)
                    except Exception as error:  # noqa: BLE001 (as torch does)
                        warn(
                            "module forward hook with `always_call=True` raised an exception that "
                            f"was silenced as another error was raised in forward: {error}",
                            UserWarning,
                        )
            raise

    def _run_pre_hook(
        self, number: int, hook: Hook, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What a pre hook leaves of the arguments."""
        if number not in self._forward_pre_hooks_with_kwargs:
            changed = hook(self, args)
            if changed is None:
                return args, kwargs
            return changed if isinstance(changed, tuple) else (changed,), kwargs
        both = hook(self, args, kwargs)
        if both is None:
            return args, kwargs
        if not isinstance(both, tuple) or len(both) != 2:
            raise OnefoldRuntimeError(
                "forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got "
                f"{both}."
            )
        return both

    def _run_hook(
        self, number: int, hook: Hook, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> Any:
        if number in self._forward_hooks_with_kwargs or number in _EVERYWHERE.with_kwargs:
            return hook(self, args, kwargs, result)
        return hook(self, args, result)


def _add_everywhere(hooks: Hooks, hook: Hook, *flags: dict[int, bool]) -> RemovableHandle:
    Hooked._has_hooks = True
    return add_hook(hooks, hook, False, [*flags])


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, args)` before the forward of every module.

    Captured programs have the hooks of the time of the capture.
    """
    return _add_everywhere(_EVERYWHERE.before, hook)


def register_module_forward_hook(
    hook: Hook, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, result)` after the forward of every module.

    `with_kwargs` and `always_call` as of `Module.register_forward_hook`.
    """
    flags = [_EVERYWHERE.with_kwargs] if with_kwargs else []
    flags += [_EVERYWHERE.always] if always_call else []
    return _add_everywhere(_EVERYWHERE.after, hook, *flags)


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` in the backward of every module."""
    return _add_everywhere(_EVERYWHERE.backward, hook)


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, grad_output)` before the backward of every module."""
    return _add_everywhere(_EVERYWHERE.backward_pre, hook)
