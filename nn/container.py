"""Containers of modules: Sequential, ModuleList, ModuleDict, ParameterList."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, overload

from ..errors import OnefoldIndexError
from .module import Module
from .parameter import Parameter


def _position(index: int, length: int) -> int:
    if not -length <= index < length:
        raise OnefoldIndexError(f"index {index} is out of range for {length} modules")
    return index % length


class Sequential(Module):
    """Modules called one after the other.

    >>> import onefold as flow
    >>> flow.nn.Sequential(flow.nn.Linear(4, 3), flow.nn.ReLU())(flow.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, *modules: Module | OrderedDict[str, Module]) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], OrderedDict):
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            for index, entry in enumerate(modules):
                assert not isinstance(entry, OrderedDict)
                self.add_module(str(index), entry)

    def forward(self, x: Any) -> Any:
        for module in self._modules.values():
            x = module(x)
        return x

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return Sequential(OrderedDict(list(self._modules.items())[index]))
        return list(self._modules.values())[_position(index, len(self))]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, list(self._modules)[_position(index, len(self))], module)

    def append(self, module: Module) -> Sequential:
        self.add_module(str(len(self)), module)
        return self


class ModuleList(Module):
    """A list of modules, whose parameters belong to the module that holds it."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> ModuleList: ...
    def __getitem__(self, index: int | slice) -> Module | ModuleList:
        if isinstance(index, slice):
            return ModuleList(list(self._modules.values())[index])
        module: Module = self._modules[str(_position(index, len(self)))]
        return module

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, str(_position(index, len(self))), module)

    def append(self, module: Module) -> ModuleList:
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        for module in modules:
            self.append(module)
        return self


class ModuleDict(Module):
    """Modules by name, whose parameters belong to the module that holds it."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        for name, module in (modules or {}).items():
            self.add_module(name, module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, name: str) -> bool:
        return name in self._modules

    def __getitem__(self, name: str) -> Module:
        module: Module = self._modules[name]
        return module

    def __setitem__(self, name: str, module: Module) -> None:
        if name in self._modules and isinstance(module, Module):
            self._modules[name] = module
        else:
            self.add_module(name, module)

    def keys(self) -> Iterable[str]:
        return list(self._modules)

    def values(self) -> Iterable[Module]:
        return list(self._modules.values())

    def items(self) -> Iterable[tuple[str, Module]]:
        return list(self._modules.items())


class ParameterList(Module):
    """A list of parameters, which belong to the module that holds it."""

    def __init__(self, parameters: Iterable[Parameter] = ()) -> None:
        super().__init__()
        for parameter in parameters:
            self.append(parameter)

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._parameters.values())

    def __getitem__(self, index: int) -> Parameter:
        parameter: Parameter = self._parameters[str(_position(index, len(self)))]
        return parameter

    def append(self, parameter: Parameter) -> ParameterList:
        self.register_parameter(str(len(self)), parameter)
        return self
