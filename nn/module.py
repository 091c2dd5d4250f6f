"""Module: parameters, buffers and submodules by name, and what one does with all of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, TypeVar

import torch

from ..engine import interp
from ..engine.convert import box, read_layout, to_global
from ..engine.grad_mode import no_grad
from ..engine.meta import Meta
from ..engine.names import names
from ..engine.sbp import Sbp
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from .parameter import Parameter

M = TypeVar("M", bound="Module")
_hook_ids = count()


class HookHandle:
    """Takes a module hook away again."""

    def __init__(self, hooks: dict[int, Callable[..., Any]]) -> None:
        self._hooks = hooks
        self._id = next(_hook_ids)

    def add(self, hook: Callable[..., Any]) -> HookHandle:
        self._hooks[self._id] = hook
        return self

    def remove(self) -> None:
        self._hooks.pop(self._id, None)


class Incompatible(tuple[list[str], list[str]]):
    """What `load_state_dict` found missing and unexpected."""

    __slots__ = ()

    @property
    def missing_keys(self) -> list[str]:
        return self[0]

    @property
    def unexpected_keys(self) -> list[str]:
        return self[1]

    def __repr__(self) -> str:
        if not (self[0] or self[1]):
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self[0]}, unexpected_keys={self[1]})"


class Module:
    """The base of every layer and network, with torch's names and semantics.

    >>> import onefold as flow
    >>> class Double(flow.nn.Module):
    ...     def forward(self, x):
    ...         return x * 2
    >>> Double()(flow.ones(2)).numpy()
    array([2., 2.], dtype=float32)
    """

    training: bool

    def __init__(self) -> None:
        fields: dict[str, Any] = {
            "training": True,
            "_parameters": {},
            "_buffers": {},
            "_non_persistent": set(),
            "_modules": {},
            "_forward_pre_hooks": {},
            "_forward_hooks": {},
        }
        self.__dict__.update(fields)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f'{type(self).__name__} is missing the required "forward"')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        fields = self.__dict__
        if not fields["_forward_pre_hooks"] and not fields["_forward_hooks"]:
            return self.forward(*args, **kwargs)
        for hook in list(fields["_forward_pre_hooks"].values()):
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        result = self.forward(*args, **kwargs)
        for hook in list(fields["_forward_hooks"].values()):
            changed = hook(self, args, result)
            if changed is not None:
                result = changed
        return result

    # Attributes: parameters, buffers and modules live in tables, everything else as usual.

    def __setattr__(self, name: str, value: Any) -> None:
        fields = self.__dict__
        if "_parameters" not in fields:
            if isinstance(value, (Parameter, Module)):
                raise OnefoldRuntimeError(
                    f"cannot assign {name!r} before Module.__init__() call: call "
                    "super().__init__() first"
                )
            object.__setattr__(self, name, value)
        elif isinstance(value, Parameter):
            self._remove(name)
            fields["_parameters"][name] = value
        elif isinstance(value, Module):
            self._remove(name)
            fields["_modules"][name] = value
        elif name in fields["_parameters"]:
            if value is not None:
                raise OnefoldTypeError(
                    f"cannot assign {type(value).__name__} as parameter {name!r} "
                    "(nn.Parameter or None expected)"
                )
            fields["_parameters"][name] = None
        elif name in fields["_buffers"]:
            if value is not None and not isinstance(value, Tensor):
                raise OnefoldTypeError(
                    f"cannot assign {type(value).__name__} as buffer {name!r} "
                    "(Tensor or None expected)"
                )
            fields["_buffers"][name] = value
        elif name in fields["_modules"]:
            if value is not None:
                raise OnefoldTypeError(
                    f"cannot assign {type(value).__name__} as child module {name!r} "
                    "(nn.Module or None expected)"
                )
            fields["_modules"][name] = None
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__
        for table in ("_parameters", "_buffers", "_modules"):
            if table in fields and name in fields[table]:
                return fields[table][name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        if not self._remove(name):
            object.__delattr__(self, name)

    def _remove(self, name: str) -> bool:
        fields = self.__dict__
        found = False
        for table in ("_parameters", "_buffers", "_modules"):
            if name in fields[table]:
                del fields[table][name]
                found = True
        fields["_non_persistent"].discard(name)
        if name in fields:
            del fields[name]
        return found

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        self._check_name(name)
        if param is not None and not isinstance(param, Parameter):
            raise OnefoldTypeError(
                f"register_parameter({name!r}): expected nn.Parameter or None, but got "
                f"{type(param).__name__}"
            )
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """A tensor that belongs to the module's state but is not trained."""
        self._check_name(name)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise OnefoldTypeError(
                f"register_buffer({name!r}): expected Tensor or None, but got "
                f"{type(tensor).__name__}"
            )
        self._buffers[name] = tensor
        if not persistent:
            self._non_persistent.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        self._check_name(name)
        if module is not None and not isinstance(module, Module):
            raise OnefoldTypeError(f"{type(module).__name__} is not a Module subclass")
        self._modules[name] = module

    register_module = add_module

    def _check_name(self, name: str) -> None:
        if "_parameters" not in self.__dict__:
            raise OnefoldRuntimeError("call super().__init__() before registering anything")
        if not isinstance(name, str) or "." in name or not name:
            raise OnefoldValueError(f"a name must be a non-empty string without '.', got {name!r}")
        tables = (self._parameters, self._buffers, self._modules)
        if name in self.__dict__ or any(name in table for table in tables):
            raise OnefoldValueError(f"attribute {name!r} already exists")

    # Walking.

    def children(self) -> Iterator[Module]:
        return (module for _, module in self.named_children())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self) -> Iterator[Module]:
        return (module for _, module in self.named_modules())

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                path = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, path, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        return (param for _, param in self.named_parameters(recurse=recurse))

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def _named(
        self, table: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        walk = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in walk:
            for name, value in module.__dict__[table].items():
                if value is None or (remove_duplicate and id(value) in seen):
                    continue
                seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def get_submodule(self, target: str) -> Module:
        module = self
        for name in target.split(".") if target else []:
            found = module._modules.get(name)
            if found is None:
                raise AttributeError(f"{type(module).__name__} has no submodule {name!r}")
            module = found
        return module

    def apply(self: M, function: Callable[[Module], Any]) -> M:
        """Call `function` on every submodule, then on this module."""
        for module in self.children():
            module.apply(function)
        function(self)
        return self

    # Modes.

    def train(self: M, mode: bool = True) -> M:
        if not isinstance(mode, bool):
            raise OnefoldValueError(f"training mode is expected to be boolean, but got {mode!r}")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: M) -> M:
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        for param in self.parameters():
            if param.grad is not None:
                param.grad = None if set_to_none else names.zeros_like(param.grad)

    # Converting all parameters and buffers, in place.

    def _convert(self: M, function: Callable[[Tensor], Tensor]) -> M:
        tensors = {id(t): t for t in [*self.parameters(), *self.buffers()]}
        with no_grad():
            converted = {key: function(tensor) for key, tensor in tensors.items()}
        for key, tensor in tensors.items():
            new = converted[key]
            if new is not tensor:
                grad = tensor.grad
                tensor.shards, tensor.meta, tensor.shared = new.shards, new.meta, new.shared
                tensor.version = interp.stamp()
                if grad is not None:
                    with no_grad():
                        tensor.grad = function(grad)
        return self

    def to_global(self: M, placement: Any = None, sbp: Any = None) -> M:
        """Make every parameter and buffer global, in place; `sbp` may be one value for all.

        `sbp` may also be a function of (name, tensor). What is local is read as the value of the
        placement's first rank, or as this rank's part where sbp splits.
        """
        names_of: dict[int, str] = {}
        for name, tensor in [*self.named_parameters(), *self.named_buffers()]:
            names_of.setdefault(id(tensor), name)
        chooses = callable(sbp) and not isinstance(sbp, Sbp)  # an Sbp is callable as well

        def convert(tensor: Tensor) -> Tensor:
            wanted = sbp(names_of[id(tensor)], tensor) if chooses else sbp
            return to_global(tensor, placement, wanted)

        for param in self.parameters():
            if param.grad is not None:
                names_of[id(param.grad)] = names_of[id(param)]
        return self._convert(convert)

    def to_local(self: M) -> M:
        """Make every parameter and buffer this rank's local part, in place."""
        return self._convert(lambda t: names.to_local(t))

    def to(self: M, *args: Any, **kwargs: Any) -> M:
        """Another dtype (of the floating point ones) or device, in place."""

        def convert(tensor: Tensor) -> Tensor:
            only_dtype = kwargs.get("dtype") or next(
                (a for a in args if isinstance(a, torch.dtype)), None
            )
            if only_dtype is not None and not tensor.is_floating_point():
                rest = [a for a in args if not isinstance(a, torch.dtype)]
                left = {k: v for k, v in kwargs.items() if k != "dtype"}
                return names.to(tensor, *rest, **left) if rest or left else tensor  # type: ignore[no-any-return]
            return names.to(tensor, *args, **kwargs)  # type: ignore[no-any-return]

        return self._convert(convert)

    def cpu(self: M) -> M:
        return self._convert(lambda t: names.cpu(t))

    def cuda(self: M, device: int | None = None) -> M:
        return self._convert(lambda t: names.cuda(t, device))

    def half(self: M) -> M:
        return self.to(torch.float16)

    def bfloat16(self: M) -> M:
        return self.to(torch.bfloat16)

    def float(self: M) -> M:
        return self.to(torch.float32)

    def double(self: M) -> M:
        return self.to(torch.float64)

    # State.

    def state_dict(
        self, *, destination: dict[str, Any] | None = None, prefix: str = ""
    ) -> dict[str, Any]:
        """Every parameter and persistent buffer by its path, sharing no memory that changes."""
        found: dict[str, Any] = OrderedDict() if destination is None else destination
        for path, module in self.named_modules(remove_duplicate=False):
            lead = prefix + (f"{path}." if path else "")
            for name, param in module._parameters.items():
                if param is not None:
                    found[lead + name] = names.detach(param)
            for name, buffer in module._buffers.items():
                if buffer is not None and name not in module._non_persistent:
                    found[lead + name] = names.detach(buffer)
        return found

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> Incompatible:
        """Take the values of `state`, converted to each parameter's dtype, placement and sbp.

        All or nothing: raises OnefoldRuntimeError listing every missing or unexpected key, wrong
        shape, or mix of local and global, before anything is changed.
        """
        own = self.state_dict()
        missing = [key for key in own if key not in state]
        unexpected = [key for key in state if key not in own]
        problems: list[str] = []
        if strict and missing:
            problems.append(f"Missing key(s) in state_dict: {', '.join(missing)}")
        if strict and unexpected:
            problems.append(f"Unexpected key(s) in state_dict: {', '.join(unexpected)}")
        tensors: dict[str, Tensor] = {}
        for path, module in self.named_modules(remove_duplicate=False):
            lead = f"{path}." if path else ""
            for table in (module._parameters, module._buffers):
                tensors.update({lead + k: t for k, t in table.items() if t is not None})
        values: dict[str, Tensor] = {}
        for key in own:
            if key in state:
                try:
                    values[key] = _fitting(tensors[key], state[key])
                except (OnefoldTypeError, OnefoldValueError) as error:
                    problems.append(f"{key}: {error}")
        if problems:
            raise OnefoldRuntimeError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n  "
                + "\n  ".join(problems)
            )
        for key, value in values.items():
            target = tensors[key]
            target.shards, target.shared = value.shards, True
            value.shared = True
            target.version = interp.stamp()
        return Incompatible((missing, unexpected))

    # Hooks.

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, args)` before forward; what it returns replaces the arguments."""
        return HookHandle(self._forward_pre_hooks).add(hook)

    def register_forward_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, args, result)` after forward; what it returns replaces the result."""
        return HookHandle(self._forward_hooks).add(hook)

    # Printing.

    def extra_repr(self) -> str:
        """What stands between the parentheses of a layer's repr."""
        return ""

    def __repr__(self) -> str:
        lines = []
        for name, module in self._modules.items():
            text = repr(module).replace("\n", "\n  ")
            lines.append(f"({name}): {text}")
        extra = self.extra_repr()
        if not lines:
            return f"{type(self).__name__}({extra})"
        body = "\n  ".join([extra, *lines] if extra else lines)
        return f"{type(self).__name__}(\n  {body}\n)"


@no_grad
def _fitting(target: Tensor, value: Any) -> Tensor:
    """`value` in the dtype and layout of `target`; torch tensors and arrays are taken as values."""
    if not isinstance(value, Tensor):
        if target.is_global:
            layout = {"placement": target.placement, "sbp": target.sbp}
        else:
            layout = {"device": target.device}
        value = names.tensor(value, dtype=target.dtype, **layout)
    if value.is_global != target.is_global:
        kinds = {True: "global", False: "local"}
        raise OnefoldTypeError(
            f"the module's tensor is {kinds[target.is_global]} but the given one is "
            f"{kinds[value.is_global]}; convert one of them with to_global or to_local"
        )
    if value.shape != target.shape:
        raise OnefoldValueError(
            f"size mismatch: the module has {tuple(target.shape)}, the state {tuple(value.shape)}"
        )
    if value.dtype != target.dtype:
        value = names.cast(value, target.dtype)
    if target.is_local:
        return names.clone(names.to(value, target.device))  # type: ignore[no-any-return]
    placement, nd_sbp = read_layout(target.placement, target.sbp, target.shape, "load_state_dict")
    return box(value, Meta.of(value.shape, value.dtype, placement, nd_sbp))
