"""Containers of modules: Sequential, ModuleList, ModuleDict, and the old Container."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Self, overload

from ..engine.argument_errors import checks_own_arguments
from ..errors import OnefoldIndexError, OnefoldTypeError, OnefoldValueError, warn
from .module import Module


def position(index: int, length: int) -> int:
    """An index from the start; raises OnefoldIndexError where there is no element."""
    index = operator.index(index)
    if not -length <= index < length:
        raise OnefoldIndexError(f"index {index} is out of range for {length} elements")
    return index % length


def pairs(who: str, given: object) -> list[tuple[str, Any]]:
    """The pairs of a mapping, or of an iterable of pairs. Raises the errors of `dict.update`."""
    if isinstance(given, Mapping):
        return list(given.items())
    if not isinstance(given, Iterable):
        raise OnefoldTypeError(
            f"{who} needs a mapping or an iterable of (key, value) pairs, but got "
            f"{type(given).__name__}"
        )
    found = [tuple(pair) if isinstance(pair, Iterable) else (pair,) for pair in given]
    for index, pair in enumerate(found):
        if len(pair) != 2:
            raise OnefoldValueError(
                f"{who}: element {index} has length {len(pair)}, where 2 is required: key and value"
            )
    return [(pair[0], pair[1]) for pair in found]


class _Modules(Module):
    """Modules in order, which are read and replaced by position."""

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
        found: Module = next(islice(self._modules.values(), position(index, len(self)), None))
        return found

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, list(self._modules)[position(index, len(self))], module)

    def __delitem__(self, index: int | slice) -> None:
        kept = list(self)
        del kept[index if isinstance(index, slice) else position(index, len(self))]
        self._renumber(kept)

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def _renumber(self, modules: Iterable[Module]) -> None:
        """Hold these modules in this order, with numbers as their names."""
        self._modules.clear()
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> Self:
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Append each of several modules. Raises OnefoldTypeError for what is not iterable."""
        if not isinstance(modules, Iterable):
            raise OnefoldTypeError(
                f"{type(self).__name__}.extend should be called with an iterable, but got "
                f"{type(modules).__name__}"
            )
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Put a module before a position. Raises OnefoldTypeError for what is no module."""
        if not isinstance(module, Module):
            raise OnefoldTypeError(f"{type(module).__name__} is not a Module subclass")
        every = list(self)
        every.insert(index, module)
        self._renumber(every)
        return self

    def pop(self, index: int) -> Module:
        """Remove a module and return it."""
        found = self[index]
        del self[index]
        return found


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

    def insert(self, index: int, module: Module) -> Self:
        """Put a module before a position. Raises OnefoldIndexError where there is none."""
        if not -len(self) <= index <= len(self):
            raise OnefoldIndexError(
                f"Index out of range: {index}; a Sequential of {len(self)} modules takes -"
                f"{len(self)} to {len(self)}"
            )
        return super().insert(index, module)

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self, *other)

    def __mul__(self, times: int) -> Sequential:
        """The modules, the same ones, several times. Raises OnefoldValueError below 1."""
        if times <= 0:
            raise OnefoldValueError(f"Sequential can be taken 1 or more times, but got {times}")
        return Sequential(*list(self) * times)

    __rmul__ = __mul__


class ModuleList(_Modules):
    """A list of modules, whose parameters belong to the module that holds it."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(() if modules is None else modules)

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

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])


class ModuleDict(Module):
    """Modules by name, whose parameters belong to the module that holds it."""

    def __init__(self, modules: Mapping[str, Module] | ModuleDict | None = None) -> None:
        super().__init__()
        self.update({} if modules is None else modules)

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

    def __delitem__(self, name: str) -> None:
        del self._modules[name]

    @checks_own_arguments
    def pop(self, name: str) -> Module:
        """Remove a module and return it. Raises KeyError if no module has this name."""
        found: Module = self._modules.pop(name)
        return found

    def clear(self) -> None:
        """Remove every module."""
        self._modules.clear()

    def update(
        self, modules: Mapping[str, Module] | ModuleDict | Iterable[tuple[str, Module]]
    ) -> None:
        """Add modules, which replace those of their names; from a mapping or (name, module)s."""
        given = modules.items() if isinstance(modules, ModuleDict) else modules
        for name, module in pairs("ModuleDict.update", given):
            self[name] = module


class Container(Module):
    """Modules by name: torch's deprecated container; warns, as torch does."""

    def __init__(self, **kwargs: Module) -> None:
        warn(
            "`nn.Container` is deprecated. All of its functionality is now implemented in "
            "`nn.Module`. Subclass that instead.",
            FutureWarning,
        )
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)
