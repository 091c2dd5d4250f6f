"""functional_call: calls a module with other tensors in place of its parameters and buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from .module import Module

Tensors = Mapping[str, Tensor]  # by path


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Tensors | Sequence[Tensors],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """The result of a module with these tensors as its parameters and buffers, by their paths.

    `args` is a tuple, or one argument. What the call changes in place is changed in the given
    tensors. A tensor given for one of several names of a parameter is used for all of them, unless
    `tie_weights` is False. One given for a parametrized name replaces its parametrization. With
    `strict` every parameter and buffer must be given. Raises OnefoldValueError for a key in several
    dicts, or different tensors for tied names; OnefoldRuntimeError with `strict`, for keys that
    do not fit.

    >>> import onefold as flow
    >>> layer = flow.nn.Linear(3, 2, bias=False)
    >>> flow.func.functional_call(layer, {"weight": flow.zeros(2, 3)}, flow.ones(1, 3)).numpy()
    array([[0., 0.]], dtype=float32)
    """
    given = _joined(parameter_and_buffer_dicts)
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _swapped(module, given, tie_weights, strict):
        return module(*args, **(kwargs or {}))


def _joined(dicts: Tensors | Sequence[Tensors]) -> dict[str, Tensor]:
    """One dict of the tensors in all."""
    if isinstance(dicts, Mapping):
        return dict(dicts)
    are_dicts = isinstance(dicts, (list, tuple)) and all(
        isinstance(each, Mapping) for each in dicts
    )
    if not are_dicts:
        raise OnefoldValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(dicts).__name__}"
        )
    keys = [key for each in dicts for key in each]
    repeated = sorted({key for key in keys if keys.count(key) > 1})
    if repeated:
        raise OnefoldValueError(
            f"{repeated} appeared in multiple dictionaries; behavior of functional call is "
            "ambiguous"
        )
    return {key: value for each in dicts for key, value in each.items()}


@contextmanager
def _swapped(module: Module, given: Tensors, tie_weights: bool, strict: bool) -> Iterator[None]:
    """A block in which the module has the given tensors."""
    for path, tensor in given.items():
        if not isinstance(tensor, Tensor):
            raise OnefoldTypeError(
                f"functional_call: {path!r} is a {type(tensor).__name__}, not an onefold Tensor"
            )
    every = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    if strict:
        _check_keys(module, {path for path, _ in every}, set(given))
    wanted = _tied(every, given) if tie_weights else given
    undo: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for path, tensor in wanted.items():
            table, name = _table_of(module, path)
            undo.append((table, name, table.get(name)))
            table[name] = tensor
        yield
    finally:
        for table, name, old in reversed(undo):
            if old is None:
                del table[name]
            else:
                table[name] = old


def _check_keys(module: Module, known: set[str], given: set[str]) -> None:
    found = [
        f"{kind} key(s): {', '.join(map(repr, sorted(keys)))}."
        for kind, keys in (("Unexpected", given - known), ("Missing", known - given))
        if keys
    ]
    if found:
        raise OnefoldRuntimeError(
            f"Error(s) in reparametrizing for {module._get_name()}:\n  " + "\n  ".join(found)
        )


def _tied(every: Sequence[tuple[str, Tensor]], given: Tensors) -> dict[str, Tensor]:
    """`given`, with the tensor of one name for all names of the same parameter."""
    names: dict[int, list[str]] = {}
    for path, tensor in every:
        names.setdefault(id(tensor), []).append(path)
    wanted = dict(given)
    for tied in names.values():
        values = {id(given[name]): given[name] for name in tied if name in given}
        if len(values) > 1:
            raise OnefoldValueError(
                f"functional_call got different values for {[n for n in tied if n in given]}, "
                "which are tied: pass the same value for all, or one of them, or tie_weights=False"
            )
        for value in values.values():
            wanted |= dict.fromkeys(tied, value)
    return wanted


def _table_of(module: Module, path: str) -> tuple[dict[str, Any], str]:
    """The table in which the owner of a parameter or buffer keeps it."""
    lead, _, name = path.rpartition(".")
    fields = module.get_submodule(lead).__dict__
    for table in ("_parameters", "_buffers"):
        if fields[table].get(name) is not None:
            return fields[table], name
    return fields, name  # which is found before a tensor that would be computed
