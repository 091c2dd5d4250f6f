"""Containers of modules: Sequential, ModuleList, ModuleDict, ParameterList."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Self, overload

from ..errors import OnefoldIndexError
from .module import Module
from .parameter import Parameter


def _position(index: int, length: int) -> int:
    if not -length <= index < length:
        raise OnefoldIndexError(f"index {index} is out of range for {length} modules")
    return index % length


class _Modules(Module):
    """Modules in an order, which are got and replaced by position."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def _part(self, index: slice) -> _Modules:
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> _Modules: ...
    def __getitem__(self, index: int | slice) -> Module:
        if isinstance(index, slice):
            return self._part(index)
        found: Module = next(islice(self._modules.values(), _position(index, len(self)), None))
        return found

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, list(self._modules)[_position(index, len(self))], module)

    def append(self, module: Module) -> Self:
        self.add_module(str(len(self)), module)
        return self


class Sequential(_Modules):
    """Modules called one after the other.

    >>> import onefold as flow
    >>> flow.nn.Sequential(flow.nn.Linear(4, 3), flow.nn.ReLU())(flow.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, *args: Module | OrderedDict[str, Module]) -> None:
        super().__init__()
        for index, entry in enumerate(args):
            if isinstance(entry, OrderedDict):
                assert len(args) == 1
                for name, module in entry.items():
                    self.add_module(name, module)
            else:
                self.add_module(str(index), entry)

    def forward(self, x: Any) -> Any:
        for module in self._modules.values():
            x = module(x)
        return x

    def _part(self, index: slice) -> Sequential:
        return Sequential(OrderedDict(list(self._modules.items())[index]))


class ModuleList(_Modules):
    """A list of modules, whose parameters belong to the module that holds it."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def _part(self, index: slice) -> ModuleList:
        return ModuleList(list(self)[index])

    def __repr__(self) -> str:
        """Modules of one repr after the other are shown once, with their count."""
        runs: list[tuple[int, list[str]]] = []
        for index, text in enumerate(map(repr, self)):
            if runs and runs[-1][1][0] == text:
                runs[-1][1].append(text)
            else:
                runs.append((index, [text]))
        lines = []
        for first, texts in runs:
            alone = len(texts) == 1
            lead = f"({first})" if alone else f"({first}-{first + len(texts) - 1})"
            text = texts[0] if alone else f"{len(texts)} x {texts[0]}"
            lines.append(f"{lead}: {text}".replace("\n", "\n  "))
        body = "\n  ".join(lines)
        return f"{self._get_name()}(\n  {body}\n)" if lines else f"{self._get_name()}()"

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

    def __init__(self, values: Iterable[Parameter] = ()) -> None:
        super().__init__()
        for parameter in values:
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
