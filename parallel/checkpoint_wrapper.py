"""Modules whose activations are computed again in backward, as torch.distributed wraps them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Any, TypeVar

from ..engine.checkpoint import checkpoint
from ..engine.saved_tensors import save_on_cpu
from ..errors import OnefoldTypeError
from ..nn.module import Module

__all__ = [
    "ActivationWrapper",
    "CheckpointImpl",
    "CheckpointWrapper",
    "OffloadWrapper",
    "apply_activation_checkpointing",
    "checkpoint_wrapper",
    "offload_wrapper",
]

M = TypeVar("M", bound=Module)

_NAME = "_checkpoint_wrapped_module"
_PREFIX = f"{_NAME}."


class CheckpointImpl(Enum):
    """Torch's two implementations; here there is one, so it makes no difference."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class ActivationWrapper(Module):
    """A module around another one; its state has the names that the other's has."""

    def __init__(self, mod: Module) -> None:
        super().__init__()
        if not isinstance(mod, Module):
            raise OnefoldTypeError(
                f"{type(self).__name__} needs an onefold Module, but got {type(mod).__name__}"
            )
        self._checkpoint_wrapped_module = mod
        self.register_state_dict_post_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == _NAME or _NAME not in self.__dict__.get("_modules", ()):
                raise
            return getattr(self._modules[_NAME], name)

    def __getitem__(self, key: Any) -> Any:
        inner: Any = self._checkpoint_wrapped_module
        return inner[key]


class CheckpointWrapper(ActivationWrapper):
    """A module whose activations are computed again in backward, by `utils.checkpoint`."""

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None,
        **checkpoint_fn_kwargs: Any,
    ) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        self.checkpoint_fn = (
            checkpoint if checkpoint_fn is None else partial(checkpoint_fn, **checkpoint_fn_kwargs)
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.checkpoint_fn(self._checkpoint_wrapped_module, *args, **kwargs)


class OffloadWrapper(ActivationWrapper):
    """A module whose saved activations are kept in the CPU's memory until backward."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None,
    **checkpoint_fn_kwargs: Any,
) -> CheckpointWrapper:
    """The module with activations that are computed again in backward.

    `checkpoint_fn(module, *args)` may do it in another way, with these keyword arguments. Raises
    OnefoldTypeError for what is no module.

    >>> import onefold as flow
    >>> block = checkpoint_wrapper(flow.nn.Linear(2, 2))
    >>> [*block.state_dict()], block.in_features
    (['weight', 'bias'], 2)
    """
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def offload_wrapper(module: Module) -> OffloadWrapper:
    """The module with saved activations in the CPU's memory."""
    return OffloadWrapper(module)


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda module: True,
    auto_wrap_policy: Any = None,
) -> None:
    """Wrap the submodules for which `check_fn` is true, in place; the model itself stays.

    `auto_wrap_policy`, such as those of torch.distributed.fsdp.wrap, is asked in its place.
    """
    if auto_wrap_policy is not None:
        chosen = _chosen_by(auto_wrap_policy, model)
        check_fn = lambda module: module in chosen  # noqa: E731
    for owner in [*model.modules()]:
        for name, child in [*owner.named_children()]:
            if check_fn(child) and not isinstance(owner, ActivationWrapper):
                setattr(owner, name, checkpoint_wrapper_fn(child))


def _chosen_by(policy: Any, model: Module) -> set[Module]:
    if hasattr(policy, "_run_policy"):
        return set(policy._run_policy(model, set(), {}))
    found = set()
    for module in model.modules():
        size = sum(param.numel() for param in module.parameters())
        if policy(module=module, recurse=False, nonwrapped_numel=size):
            found.add(module)
    return found


def _without_prefix(module: Module, state: dict[str, Any], prefix: str, metadata: object) -> None:
    for name in [*state]:
        if name.startswith(prefix + _PREFIX):
            state[prefix + name.removeprefix(prefix + _PREFIX)] = state.pop(name)


def _with_prefix(module: Module, state: dict[str, Any], prefix: str, *rest: object) -> None:
    own = [name for name, _ in [*module.named_parameters(), *module.named_buffers()]]
    for name in own:
        plain = prefix + name.removeprefix(_PREFIX)
        if plain in state:
            state[prefix + name] = state.pop(plain)
