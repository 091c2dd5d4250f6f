"""The registration and traversal of parameters, buffers and submodules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

import torch

from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from .parameter import Parameter

if TYPE_CHECKING:
    from .module import Module


# What a name in each table of a module may be assigned.
_ASSIGNABLE = {
    "_parameters": ("parameter", "nn.Parameter"),
    "_buffers": ("buffer", "Tensor"),
    "_modules": ("child module", "nn.Module"),
}


def _check_assigned(name: str, value: object, table: str, good: bool) -> None:
    if not good:
        kind, wanted = _ASSIGNABLE[table]
        raise OnefoldTypeError(
            f"cannot assign {type(value).__name__} as {kind} {name!r} ({wanted} or None expected)"
        )


def _refuse_torch(name: str, value: object) -> None:
    """Raise an error for a layer or parameter of torch, which `parameters()` would not find."""
    kind = type(value).__name__
    if isinstance(value, torch.nn.Module):
        raise OnefoldTypeError(
            f"cannot assign a layer of torch ({type(value).__module__}.{kind}) as {name!r} of an "
            f"onefold module: use onefold.nn.{kind}, or a subclass of onefold.nn.Module that calls "
            "onefold.nn.functional; load_state_dict takes the state_dict of a torch layer"
        )
    if isinstance(value, torch.nn.Parameter):
        raise OnefoldTypeError(
            f"cannot assign a parameter of torch (torch.nn.{kind}) as {name!r} of an onefold "
            "module: use onefold.nn.Parameter(onefold.tensor(data))"
        )


class Tree:
    """Named tables of parameters, buffers and other trees; the part of Module that walks them."""

    def __init__(self) -> None:
        fields: dict[str, Any] = {
            "_parameters": {},
            "_buffers": {},
            "_non_persistent": set(),
            "_modules": {},
        }
        self.__dict__.update(fields)

    # Attributes: parameters, buffers and modules live in tables, everything else as usual.

    def __setattr__(self, name: str, value: Any) -> None:
        fields = self.__dict__
        _refuse_torch(name, value)
        if "_parameters" not in fields:
            if isinstance(value, (Parameter, Tree)):
                raise OnefoldRuntimeError(
                    f"cannot assign {name!r} before Module.__init__() call: call "
                    "super().__init__() first"
                )
            object.__setattr__(self, name, value)
        elif isinstance(value, Parameter):
            self._remove(name, "_parameters")
            fields["_parameters"][name] = value
        elif isinstance(value, Tree):
            self._remove(name, "_modules")
            fields["_modules"][name] = value
        elif name in fields["_parameters"] or name in fields["_modules"]:
            kind = "_parameters" if name in fields["_parameters"] else "_modules"
            _check_assigned(name, value, kind, value is None)
            fields[kind][name] = None
        elif name in fields["_buffers"]:
            _check_assigned(name, value, "_buffers", value is None or isinstance(value, Tensor))
            fields["_buffers"][name] = value
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

    def _remove(self, name: str, keep: str = "") -> bool:
        """Forget what `name` stands for, unless it is in the table `keep`, whose order counts."""
        fields = self.__dict__
        tables = ("_parameters", "_buffers", "_modules")
        found = [table for table in tables if table != keep and name in fields[table]]
        for table in found:
            del fields[table][name]
        fields["_non_persistent"].discard(name)
        fields.pop(name, None)
        return bool(found)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        self._check_name(name)
        _refuse_torch(name, param)
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

    def add_module(self, name: str, module: Tree | None) -> None:
        self._check_name(name)
        _refuse_torch(name, module)
        if module is not None and not isinstance(module, Tree):
            raise OnefoldTypeError(f"{type(module).__name__} is not a Module subclass")
        self._modules[name] = module

    register_module = add_module

    def _check_name(self, name: Any) -> None:
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
        if cast("Module", self) in memo:
            return
        if remove_duplicate:
            memo.add(cast("Module", self))
        yield prefix, cast("Module", self)
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
        walk: Iterable[tuple[str, Module]] = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, cast("Module", self))]
        )
        for path, module in walk:
            for name, value in module.__dict__[table].items():
                if value is None or (remove_duplicate and id(value) in seen):
                    continue
                seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def get_submodule(self, target: str) -> Module:
        module: Any = self
        for name in target.split(".") if target else []:
            found = module._modules.get(name)
            if found is None:
                raise AttributeError(f"{type(module).__name__} has no submodule {name!r}")
            module = found
        return module  # type: ignore[no-any-return]
