"""The objects of a training state: what is saved of each, how tensors are laid out, and loading."""

from __future__ import annotations

import copy
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeGuard, runtime_checkable

import torch

from ..engine.generator import Generator
from ..engine.inplace import fitted, take
from ..engine.meta import Meta
from ..engine.tensor import Tensor
from ..engine.views import frozen
from ..errors import OnefoldTypeError, OnefoldValueError, ShapeError
from ..nn.graph import Graph
from ..nn.graph_state import state_of, undoing
from ..nn.module import Module
from ..optim.optimizer import Optimizer, with_numbers
from .value_tree import Description

State: TypeAlias = Mapping[str, object]


@runtime_checkable
class Stateful(Protocol):
    """Any object with `state_dict` and `load_state_dict`."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any, /) -> object: ...


_NAME = re.compile(r"[\w-][\w.-]*")


class Part(NamedTuple):
    """A live object in the state, and the keys that lead to it, of which the first is a string."""

    path: tuple[Any, ...]
    live: object

    @property
    def section(self) -> str:
        return str(self.path[0])

    @property
    def prefix(self) -> str:
        """What the names of its tensors begin with."""
        return "".join(f"{key}." for key in self.path[1:])


def parts_of(state: State) -> list[Part]:
    """The live objects of a state, which may be in dicts.

    Raises OnefoldTypeError unless the state is a dict whose keys can begin names of files.
    """
    if not isinstance(state, Mapping):
        raise OnefoldTypeError(
            "checkpoint: the state must be a dict, such as {'model': model, 'optimizer': "
            f"optimizer}}, but got {type(state).__name__}"
        )
    for key in state:
        name: object = key
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name == "step":
            raise OnefoldValueError(
                f"checkpoint: {key!r} cannot be a key of the state: keys begin the names of files, "
                "so they have letters, digits, '_', '-' and '.'; 'step' is the argument"
            )
    found: list[Part] = []
    _find(state, (), found)
    return found


def _find(value: object, path: tuple[object, ...], found: list[Part]) -> None:
    if _is_live(value):
        found.append(Part(path, value))
    elif isinstance(value, dict) or (isinstance(value, Mapping) and not path):
        for key, inner in value.items():
            _find(inner, (*path, key), found)


def _is_live(value: object) -> bool:
    return isinstance(value, (Tensor, Generator, torch.Generator, Stateful))


def _is_optimizer(value: object) -> TypeGuard[Optimizer]:
    """Whether it is one whose state is that of its parameters.

    A program's own class may hold several optimizers, and have the methods for their states.
    """
    package = __name__.partition(".")[0]
    return isinstance(value, Optimizer) and all(
        method.__module__.partition(".")[0] == package
        for method in (type(value).state_dict, type(value).load_state_dict)
    )


def with_states(value: object) -> Any:
    """The state with each live object replaced by its state dict; tensors are not copied.

    Other values stay as they are.
    """
    if isinstance(value, Module):
        return value.state_dict(keep_vars=True)
    if _is_optimizer(value):
        return value.state_dict() if value.has_state_hooks else value._described(with_numbers)
    if isinstance(value, Graph):
        return state_of(value._parts(), keep_vars=True)
    if isinstance(value, (Generator, torch.Generator)):
        return value.get_state()
    if isinstance(value, Stateful) and not isinstance(value, Tensor):
        return value.state_dict()
    if isinstance(value, dict):
        return {key: with_states(inner) for key, inner in value.items()}
    return value


# Where loaded tensors go.


class Target(NamedTuple):
    """How a tensor that is loaded will be laid out; `exact` where shape and dtype must be equal."""

    meta: Meta
    exact: bool


Targets: TypeAlias = Callable[[str], Target | None]


def targets_of(live: object) -> Targets:
    """The targets of a live object's tensors, by their names."""
    if isinstance(live, Tensor):
        return lambda name: Target(live.meta, True)
    if _is_optimizer(live):
        return partial(_of_optimizer, [p for g in live.param_groups for p in g["params"]])
    if isinstance(live, Graph):
        return partial(_of_graph, live._parts().paths_to(), _metas(with_states(live)))
    if isinstance(live, Module):
        return _metas(with_states(live)).get
    own = {} if not isinstance(live, Stateful) else _metas(live.state_dict())
    return {name: Target(target.meta, False) for name, target in own.items()}.get


def _metas(state: object) -> dict[str, Target]:
    found = Description(state).tensors.items()
    return {name: Target(x.meta, True) for name, x in found if isinstance(x, Tensor)}


def _of_optimizer(params: list[Tensor], name: str) -> Target | None:
    match = re.fullmatch(r"state\.(\d+)\..+", name)
    if match is None or int(match[1]) >= len(params):
        return None
    return Target(params[int(match[1])].meta, False)


def _of_graph(paths: dict[str, Tensor], own: dict[str, Target], name: str) -> Target | None:
    param = paths.get(name.rpartition("-")[0])
    return own.get(name) if param is None else Target(param.meta, False)


# Loading.


def load_all(parts: list[tuple[Part, Any]]) -> None:
    """Load the state of every live object. If one raises an error, all are restored."""
    undo: list[Callable[[], object]] = []
    try:
        for part, value in parts:
            undo.append(_undoing(part.live))
            try:
                _load(part.live, value)
            except ShapeError as error:
                if not isinstance(part.live, Tensor):
                    raise
                raise ShapeError(f"{'.'.join(map(str, part.path))}: {error}") from error
    except BaseException:
        for back in reversed(undo):
            back()
        raise


def _load(live: Any, value: Any) -> None:
    if isinstance(live, Tensor):
        take(live, fitted(value, live))
    elif isinstance(live, (Generator, torch.Generator)):
        live.set_state(value)
    else:
        live.load_state_dict(value)


def _undoing(live: Any) -> Callable[[], object]:
    """What gives a live object back its present state."""
    if isinstance(live, Tensor):
        before = frozen(live)
        return lambda: take(live, before)
    if _is_optimizer(live):
        return undoing(live)
    if isinstance(live, Generator):
        return partial(live.set_state, live.get_state())
    if isinstance(live, torch.Generator):
        return partial(live.set_state, live.get_state())
    state = live.state_dict()
    if not isinstance(live, Graph):
        state = _kept(state)
    return partial(live.load_state_dict, state)


def _kept(state: Any) -> Any:
    """A state that later changes of the tensors and containers in it do not reach."""
    if isinstance(state, Tensor):
        return frozen(state)
    if type(state) in (dict, OrderedDict):
        return type(state)((key, _kept(value)) for key, value in state.items())
    if type(state) in (list, tuple):
        return type(state)(map(_kept, state))
    return copy.deepcopy(state)
