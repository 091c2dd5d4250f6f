"""The state of modules: state_dict and load_state_dict, and the hooks of both."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from torch.utils.hooks import RemovableHandle

from ..engine.argument_errors import with_argument_errors
from ..engine.grad_attributes import detach
from ..engine.inplace import fitted, take
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError, ShapeError
from .module_tree import Tree
from .parameter import Parameter

Hook: TypeAlias = Callable[..., object]
Hooks: TypeAlias = "OrderedDict[int, Hook]"
Change: TypeAlias = Callable[[], object]

_EXTRA = "_extra_state"
_CHANGES = "changes"  # of the metadata: where `load_state_dict` collects what it will change
_ASSIGN = "assign_to_params_buffers"


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict` found missing and unexpected."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not any(self):
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self[0]}, unexpected_keys={self[1]})"


def add_hook(
    hooks: Hooks, hook: Hook, prepend: bool = False, flags: list[dict[int, bool]] | None = None
) -> RemovableHandle:
    """Add a hook at the end or the start, and mark it in each of `flags`."""
    flags = flags or []
    handle = RemovableHandle(hooks, extra_dict=flags)
    hooks[handle.id] = hook
    for flag in flags:
        flag[handle.id] = True
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


class State(Tree):
    """The part of Module that reads and writes its state by name."""

    _version = 1  # of the state's form: `_load_from_state_dict` finds the one that was saved
    # OrderedDicts, of which a RemovableHandle can have a weak reference.
    _hook_tables: tuple[str, ...] = (
        "_state_dict_hooks",
        "_state_dict_pre_hooks",
        "_load_state_dict_pre_hooks",
        "_load_state_dict_post_hooks",
    )

    def __init__(self) -> None:
        super().__init__()
        self.__dict__.update({table: OrderedDict() for table in self._hook_tables})

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for table in self._hook_tables:
            self.__dict__.setdefault(table, OrderedDict())

    # Reading.

    def state_dict(
        self,
        *args: Any,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """Every parameter and persistent buffer by its path, detached: they change together.

        With `keep_vars` they are the parameters themselves. `copy.deepcopy(module.state_dict())`
        keeps the values of now, as in torch.
        """
        given = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False))
        destination = given.get("destination", destination)
        prefix = given.get("prefix", prefix)
        keep_vars = given.get("keep_vars", keep_vars)
        found: dict[str, Any]
        if destination is None:
            found = OrderedDict()
            vars(found)["_metadata"] = OrderedDict()
        else:
            found = destination
        own = {"version": self._version}
        metadata = getattr(found, "_metadata", None)
        if metadata is not None:
            metadata[prefix[:-1]] = own
        for before in list(self._state_dict_pre_hooks.values()):
            before(self, prefix, keep_vars)
        self._save_to_state_dict(found, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=found, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for after in list(self._state_dict_hooks.values()):
            result = after(self, found, prefix, own)
            if result is not None:
                found = result
        return found

    def _own_state(self) -> Iterator[tuple[str, Tensor]]:
        """The parameters and persistent buffers of this module alone."""
        for name, tensor in [*self._parameters.items(), *self._buffers.items()]:
            if tensor is not None and name not in self._non_persistent_buffers_set:
                yield name, tensor

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """Add this module's own state; a subclass may add more."""
        for name, tensor in self._own_state():
            destination[prefix + name] = tensor if keep_vars else detach(tensor)
        if _overrides(self, "get_extra_state"):
            destination[prefix + _EXTRA] = self.get_extra_state()

    def get_extra_state(self) -> Any:
        """What else belongs to the state; a subclass that has this has `set_extra_state` too."""
        raise OnefoldRuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called: define "
            "it in the subclass"
        )

    def set_extra_state(self, state: Any) -> None:
        """Take what `get_extra_state` gave."""
        raise OnefoldRuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called: define "
            "it in the subclass"
        )

    # Writing.

    @with_argument_errors
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Take the values of `state_dict`, converted to each parameter's dtype, placement and sbp.

        With `assign` its tensors become the parameters, in their own dtype and layout. All or
        nothing: raises OnefoldRuntimeError listing every missing or unexpected key, wrong shape, or
        mix of local and global, before anything is changed; but where a post hook could forgive
        keys, before it has decided. OnefoldTypeError for what is no mapping.
        """
        if not isinstance(state_dict, Mapping):
            raise OnefoldTypeError(
                f"Expected state_dict to be dict-like, got {type(state_dict).__name__}."
            )
        metadata = getattr(state_dict, "_metadata", None) or {}
        keys = IncompatibleKeys([], [])
        problems: list[str] = []
        changes: list[Change] = []
        hooked: list[State] = []  # children first

        def collect(module: State, part: dict[str, Any], prefix: str) -> None:
            local = {**metadata.get(prefix[:-1], {}), _CHANGES: changes}
            if assign:
                local[_ASSIGN] = True
            module._load_from_state_dict(part, prefix, local, True, *keys, problems)
            for name, child in module._modules.items():
                if child is not None:
                    lead = f"{prefix}{name}."
                    collect(child, {k: v for k, v in part.items() if k.startswith(lead)}, lead)
            if module._load_state_dict_post_hooks:
                hooked.append(module)

        def check() -> None:
            found = list(problems)
            for kind, names in (("Unexpected", keys[1]), ("Missing", keys[0])):
                if strict and names:
                    found.insert(0, f"{kind} key(s) in state_dict: {', '.join(names)}")
            if found:
                raise OnefoldRuntimeError(
                    f"Error(s) in loading state_dict for {type(self).__name__}:\n  "
                    + "\n  ".join(found)
                )

        collect(self, OrderedDict(state_dict), "")
        if problems or not hooked:
            check()
        for change in changes:
            change()
        for module in hooked:
            for hook in list(module._load_state_dict_post_hooks.values()):
                hook(module, keys)
        check()
        return keys

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Take this module's own state; a subclass may change `state_dict` before it calls this.

        What is called by `load_state_dict` leaves the changes to it, by way of `local_metadata`.
        """
        given = (state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys)
        for hook in list(self._load_state_dict_pre_hooks.values()):
            hook(*given, error_msgs)
        changes: list[Change] = []
        own = dict(self._own_state())
        for name, tensor in own.items():
            if prefix + name not in state_dict:
                missing_keys.extend([prefix + name] if strict else [])
                continue
            value = state_dict[prefix + name]
            try:
                changes += self._load_changes(name, tensor, value, _ASSIGN in local_metadata)
            except (OnefoldTypeError, OnefoldValueError) as error:
                error_msgs.append(f"{prefix}{name}: {error}")
        if _overrides(self, "set_extra_state"):
            if prefix + _EXTRA in state_dict:
                changes.append(partial(self.set_extra_state, state_dict[prefix + _EXTRA]))
            elif strict:
                missing_keys.append(prefix + _EXTRA)
        elif strict and prefix + _EXTRA in state_dict:
            unexpected_keys.append(prefix + _EXTRA)
        for key in state_dict if strict else ():
            if key.startswith(prefix) and key != prefix + _EXTRA:
                name, _, rest = key[len(prefix) :].partition(".")
                if name not in (self._modules if rest else own):
                    unexpected_keys.append(key)
        if _CHANGES in local_metadata:
            local_metadata[_CHANGES].extend(changes)
            return
        for change in changes:
            change()

    def _load_changes(self, name: str, tensor: Tensor, value: Any, assign: bool) -> list[Change]:
        """What gives a parameter or buffer a saved value."""
        if not tensor.ndim and getattr(value, "shape", ()) == (1,):
            value = value[0]  # scalars once had a dim in torch
        if not assign:
            return [partial(take, tensor, fitted(value, tensor))]
        made = _assignable(value, tensor)
        changes: list[Change] = [partial(setattr, self, name, made)]
        if isinstance(tensor, Parameter):
            changes.append(partial(made.requires_grad_, tensor.requires_grad))
        return changes

    # Hooks.

    def register_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before state_dict reads the module."""
        return add_hook(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)`, which may change the dict."""

        def call(*args: object) -> None:
            if hook(*args) is not None:
                raise OnefoldRuntimeError("state_dict post-hook must return None")

        return add_hook(self._state_dict_hooks, call)

    def _register_state_dict_hook(self, hook: Hook) -> RemovableHandle:
        """The same for a hook that may return another dict."""
        return add_hook(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(module, ...)` with what `_load_from_state_dict` gets, before it."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Hook, with_module: bool = False
    ) -> RemovableHandle:
        """The same for a hook that need not get the module."""
        return add_hook(
            self._load_state_dict_pre_hooks, partial(hook, self) if with_module else hook
        )

    def register_load_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after loading; it may remove keys from both."""
        return add_hook(self._load_state_dict_post_hooks, hook)


def _overrides(module: State, name: str) -> bool:
    return getattr(type(module), name) is not getattr(State, name)


def _assignable(value: object, target: Tensor) -> Tensor:
    """A value that replaces a parameter or buffer, unchanged."""
    found = value if isinstance(value, Tensor) else fitted(value, target)
    if found.shape != target.shape:
        raise ShapeError(
            f"size mismatch: the tensor has {tuple(target.shape)}, the value {tuple(found.shape)}"
        )
    if not isinstance(target, Parameter):
        return found
    if isinstance(found, Parameter):
        return found
    return Parameter(detach(found), target.requires_grad)
