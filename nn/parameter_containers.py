"""Containers of parameters: ParameterList and ParameterDict."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, KeysView, Mapping
from typing import Any, NoReturn, Self, overload

from ..engine.argument_errors import checks_own_arguments
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, OnefoldTypeError
from .container import pairs, position
from .module import Module
from .parameter import Parameter


class _Parameters(Module):
    """Values as attributes; tensors become parameters, other values stay as they are."""

    def _put(self, name: str, value: object) -> None:
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, name, value)

    def _lines(self, values: Iterable[tuple[object, object]]) -> str:
        lines = []
        for key, value in values:
            if isinstance(value, Tensor):
                size = "x".join(map(str, value.shape))
                lines.append(f"  ({key}): Parameter containing: [{value.dtype} of size {size}]")
            else:
                lines.append(f"  ({key}): Object of type: {type(value).__name__}")
        return "\n".join(lines)

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise OnefoldRuntimeError(f"{type(self).__name__} should not be called.")


class ParameterList(_Parameters):
    """A list of parameters, which belong to the module that holds it; tensors become parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        self.extend(() if values is None else values)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    @overload
    def __getitem__(self, idx: int) -> Any: ...
    @overload
    def __getitem__(self, idx: slice) -> ParameterList: ...
    def __getitem__(self, idx: int | slice) -> Any:
        if isinstance(idx, slice):
            return ParameterList([self[index] for index in range(*idx.indices(len(self)))])
        return getattr(self, str(position(idx, len(self))))

    def __setitem__(self, idx: int, param: object) -> None:
        self._put(str(position(idx, len(self))), param)

    def __iadd__(self, parameters: Iterable[Any]) -> Self:
        return self.extend(parameters)

    def append(self, value: object) -> Self:
        self._put(str(self._size), value)
        self._size += 1
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Append each of several values. Raises OnefoldTypeError for what is not iterable."""
        if isinstance(values, Tensor) or not hasattr(values, "__iter__"):
            raise OnefoldTypeError(
                "ParameterList.extend should be called with an iterable, but got "
                f"{type(values).__name__}"
            )
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return self._lines(enumerate(self))


class ParameterDict(_Parameters):
    """Parameters by name, which belong to the module that holds it; tensors become parameters.

    >>> import onefold as flow
    >>> found = flow.nn.ParameterDict({"scale": flow.ones(2)})
    >>> found["scale"].requires_grad, list(found.state_dict())
    (True, ['scale'])
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        self.update({} if parameters is None else parameters)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: object) -> None:
        if not isinstance(key, str):
            raise OnefoldTypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string "
                f"(type is {type(key).__name__!r})"
            )
        if key not in self._keys:
            self._check_name(key, "_parameters")
        self._put(key, value)
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __or__(self, other: Mapping[str, Any] | ParameterDict) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Mapping[str, Any]) -> ParameterDict:
        made = ParameterDict(other)
        made.update(self)
        return made

    def __ior__(self, other: Mapping[str, Any] | ParameterDict) -> Self:
        self.update(other)
        return self

    def copy(self) -> ParameterDict:
        """Another dict of the same parameters."""
        return ParameterDict(self.items())

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of a key, which is `default` from now on if there was none."""
        if key not in self:
            self[key] = default
        return self[key]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        return self[key] if key in self._keys else default

    @checks_own_arguments
    def pop(self, key: str) -> Any:
        """Remove a key and return its value. Raises KeyError if there is none."""
        found = self[key]
        del self[key]
        return found

    @checks_own_arguments
    def popitem(self) -> tuple[str, Any]:
        """Remove the last key and return it with its value. Raises KeyError if there is none."""
        if not self._keys:
            raise KeyError("popitem(): the ParameterDict is empty")
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def clear(self) -> None:
        """Remove every key."""
        for key in list(self._keys):
            del self[key]

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new dict with one value for all keys."""
        return ParameterDict([(key, default) for key in keys])

    def keys(self) -> KeysView[str]:
        return self._keys.keys()

    def values(self) -> Iterator[Any]:
        return (self[key] for key in self._keys)

    def items(self) -> Iterator[tuple[str, Any]]:
        return ((key, self[key]) for key in self._keys)

    def update(self, parameters: Any) -> None:
        """Add values, which replace those of their keys; from a mapping or (key, value) pairs.

        New keys of a mapping that is no OrderedDict come in alphabetical order, as in torch, whose
        optimizers number parameters so.
        """
        given = parameters.items() if isinstance(parameters, ParameterDict) else parameters
        found = pairs("ParameterDict.update", given)
        if isinstance(given, Mapping) and not isinstance(given, OrderedDict):
            found.sort(key=lambda pair: pair[0])
        for key, value in found:
            self[key] = value

    def extra_repr(self) -> str:
        return self._lines(self.items())
