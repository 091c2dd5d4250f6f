"""The registration and traversal of parameters, buffers and submodules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch

from ..engine.ops.sparse_tensor import SparseTensor
from ..engine.tensor import Tensor
from ..errors import (
    OnefoldAttributeError,
    OnefoldRuntimeError,
    OnefoldTypeError,
    OnefoldValueError,
)
from .parameter import Buffer, Parameter
from .sparse_buffers import SparseBuffer, register_sparse

if TYPE_CHECKING:
    from .module import Module


# What a name in each table of a module may be assigned.
_ASSIGNABLE = {
    "_parameters": ("parameter", "nn.Parameter"),
    "_buffers": ("buffer", "Tensor"),
    "_modules": ("child module", "nn.Module"),
}


def _refuse_torch(name: str, value: object) -> None:
    """Raise an error for a layer or parameter of torch, which `parameters()` would not find."""
    kind = type(value).__name__
    if isinstance(value, torch.nn.Module):
        if type(value).__module__ == "einops.layers.torch":
            raise OnefoldTypeError(
                f"cannot assign einops' layer {kind} for torch as {name!r} of an onefold module: "
                f"write `from einops.layers.onefold import {kind}`"
            )
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


class ComputedTensor(Protocol):
    """An attribute of a module that is computed from other parameters where it is read."""

    def value(self, module: Any, /) -> Tensor | SparseTensor:
        """What reading the attribute gives."""

    def assign(self, module: Any, value: object, /) -> None:
        """What assigning the attribute does; raises where it cannot be assigned."""


class ParametersOf(Iterator[Parameter]):
    """The parameters of a module, one after the other; an optimizer finds the module, too."""

    def __init__(self, module: Tree, parameters: Iterator[Parameter]) -> None:
        self.module = module
        self._next = parameters.__next__

    def __next__(self) -> Parameter:
        return self._next()


class Tree:
    """Named tables of parameters, buffers and other trees; the part of Module that walks them."""

    def __init__(self) -> None:
        self.__dict__.update(
            _parameters={}, _buffers={}, _non_persistent_buffers_set=set(), _modules={}
        )

    # Attributes: parameters, buffers and modules live in tables, everything else as usual.

    def __setattr__(self, name: str, value: object) -> None:
        fields = self.__dict__
        _refuse_torch(name, value)
        if name in fields.get("_computed_tensors", ()):
            fields["_computed_tensors"][name].assign(self, value)
        elif "_parameters" not in fields:
            if isinstance(value, (Parameter, Buffer, Tree)):
                raise OnefoldRuntimeError(
                    f"cannot assign {name!r} before Module.__init__() call: call "
                    "super().__init__() first"
                )
            object.__setattr__(self, name, value)
        elif isinstance(value, Parameter):
            self._remove_member(name, "_parameters")
            fields["_parameters"][name] = value
        elif isinstance(value, Buffer):
            self._remove_member(name)
            self.register_buffer(name, value, value.persistent)
        elif isinstance(value, Tree):
            self._remove_member(name, "_modules")
            fields["_modules"][name] = value
        elif not (tables := [table for table in _ASSIGNABLE if name in fields[table]]):
            object.__setattr__(self, name, value)
        elif value is None or (tables == ["_buffers"] and isinstance(value, Tensor)):
            fields[tables[0]][name] = value
        else:
            kind, wanted = _ASSIGNABLE[tables[0]]
            raise OnefoldTypeError(
                f"cannot assign {type(value).__name__} as {kind} {name!r} "
                f"({wanted} or None expected)"
            )

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__
        for table in _ASSIGNABLE:
            if table in fields and name in fields[table]:
                return fields[table][name]
        if name in fields.get("_computed_tensors", ()):
            return fields["_computed_tensors"][name].value(self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__ or not (self._remove_member(name) or self._remove_sparse(name)):
            object.__delattr__(self, name)

    def _remove_member(self, name: str, keep: str = "") -> bool:
        """Forget what `name` stands for, unless it is in the table `keep`, whose order counts."""
        fields = self.__dict__
        found = [table for table in _ASSIGNABLE if table != keep and name in fields[table]]
        for table in found:
            del fields[table][name]
        fields["_non_persistent_buffers_set"].discard(name)
        fields.pop(name, None)
        return bool(found)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        self._check_name(name, "_parameters")
        _refuse_torch(name, param)
        if param is not None and not isinstance(param, Parameter):
            raise OnefoldTypeError(
                f"register_parameter({name!r}): expected nn.Parameter or None, but got "
                f"{type(param).__name__}"
            )
        self._parameters[name] = param

    def register_buffer(
        self, name: str, tensor: Tensor | SparseTensor | None, persistent: bool = True
    ) -> None:
        """A tensor that belongs to the module's state but is not trained.

        A sparse one is two buffers, `name_indices` and `name_values`.
        """
        if tensor is None or isinstance(tensor, (SparseTensor, Tensor)):
            self._remove_sparse(name)
        self._check_name(name, "_buffers")
        if isinstance(tensor, SparseTensor):
            register_sparse(self, name, tensor, persistent)
            return
        if tensor is not None and not isinstance(tensor, Tensor):
            raise OnefoldTypeError(
                f"register_buffer({name!r}): expected Tensor or None, but got "
                f"{type(tensor).__name__}"
            )
        transient = not persistent
        self._buffers[name] = tensor
        self._non_persistent_buffers_set.discard(name)
        if transient:
            self._non_persistent_buffers_set.add(name)

    def _remove_sparse(self, name: str) -> bool:
        """Forget a sparse buffer of this name; whether there was one."""
        found = self._computed_tensor(name)
        if isinstance(found, SparseBuffer):
            found.remove(self)
        return isinstance(found, SparseBuffer)

    def add_module(self, name: str, module: Tree | None) -> None:
        self._check_name(name, "_modules")
        _refuse_torch(name, module)
        if module is not None and not isinstance(module, Tree):
            raise OnefoldTypeError(f"{type(module).__name__} is not a Module subclass")
        self._modules[name] = module

    register_module = add_module

    def _check_name(self, name: object, own: str) -> None:
        """`name` must not be an attribute yet, except one in the table `own`."""
        if "_parameters" not in self.__dict__:
            raise OnefoldRuntimeError("call super().__init__() before registering anything")
        if not isinstance(name, str) or "." in name or not name:
            raise OnefoldValueError(f"a name must be a non-empty string without '.', got {name!r}")
        fields = self.__dict__
        others = [fields[table] for table in _ASSIGNABLE if table != own]
        tables = (fields, *others, fields.get("_computed_tensors", ()))
        if any(name in table for table in tables):
            raise OnefoldValueError(f"attribute {name!r} already exists")

    # Tensors that are computed where they are read, such as a weight that is parametrized.

    def _set_computed(self, name: str, computed: ComputedTensor) -> None:
        """Make `computed` the value of the attribute `name`, instead of the present one."""
        self._remove_member(name)
        self.__dict__.setdefault("_computed_tensors", {})[name] = computed

    def _computed_tensor(self, name: str) -> ComputedTensor | None:
        """What computes the attribute `name`, if it is computed."""
        found: ComputedTensor | None = self.__dict__.get("_computed_tensors", {}).get(name)
        return found

    def _unset_computed(self, name: str, tensor: Tensor) -> None:
        """Let the attribute `name`, which was computed, be a parameter or a buffer again."""
        del self.__dict__["_computed_tensors"][name]
        if isinstance(tensor, Parameter):
            self.register_parameter(name, tensor)
        else:
            self.register_buffer(name, tensor)

    # Walking.

    def children(self) -> Iterator[Module]:
        return (module for _, module in self.named_children())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        every = self.named_modules(remove_duplicate=remove_duplicate)
        return (module for _, module in every)

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        memo, module = set() if memo is None else memo, cast("Module", self)
        if module in memo:
            return
        if remove_duplicate:
            memo.add(module)
        yield prefix, module
        for name, child in self._modules.items():
            if child is not None:
                path = f"{prefix}.{name}" if prefix else name
                yield from child.named_modules(memo, path, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        return ParametersOf(self, (param for _, param in self.named_parameters(recurse=recurse)))

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        return self._named_tensors("_parameters", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        return self._named_tensors("_buffers", prefix, recurse, remove_duplicate)

    def _named_tensors(
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
        module = cast("Module", self)
        for name in target.split(".") if target else []:
            found = module._modules.get(name)
            if found is None:
                raise OnefoldAttributeError(f"{type(module).__name__} has no submodule {name!r}")
            module = found
        return module

    def set_submodule(self, target: str, module: Tree, strict: bool = False) -> None:
        """Put a module at a path; with `strict`, only where there is one. Raises AttributeError."""
        if not target:
            raise OnefoldValueError("cannot set the submodule without a target name")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and name not in parent._modules:
            raise OnefoldAttributeError(f"{type(parent).__name__} has no submodule {name!r}")
        _refuse_torch(name, module)
        if not isinstance(module, Tree):
            raise OnefoldValueError(
                f"`module` is not an nn.Module, found {type(module).__name__} instead"
            )
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a path. Raises AttributeError when there is none."""
        found: Parameter = self._find_member(target, "_parameters", "parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a path. Raises AttributeError when there is none."""
        found: Tensor = self._find_member(target, "_buffers", "buffer")
        return found

    def _find_member(self, target: str, table: str, kind: str) -> Any:
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        found = owner.__dict__[table].get(name)
        if found is None:
            raise OnefoldAttributeError(f"{type(owner).__name__} has no {kind} {name!r}")
        return found

    def __dir__(self) -> list[str]:
        computed = self.__dict__.get("_computed_tensors", {})
        tables = (self._parameters, self._buffers, self._modules, computed)
        names = {*object.__dir__(self), *(name for table in tables for name in table)}
        return sorted(name for name in names if not name[0].isdigit())
