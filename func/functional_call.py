"""functional_call: a module with other parameters and buffers, for one call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError
from ..nn.module import Module

Tensors = Mapping[str, Tensor]


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Tensors | Sequence[Tensors],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """module(*args, **kwargs) with tensors from dicts in place of its own, by their names.

    Gradients go to the given tensors. A parameter under several names is replaced under all of
    them, unless `tie_weights` is False. With `strict` every name must be given, and be one of the
    module's. Raises OnefoldRuntimeError for names that are given twice, or that `strict` refuses.

    >>> import onefold as flow
    >>> layer = flow.nn.Linear(2, 1)
    >>> given = {"weight": flow.ones(1, 2), "bias": flow.zeros(1)}
    >>> flow.func.functional_call(layer, given, flow.tensor([[1.0, 2.0]]))
    tensor([[3.]])
    """
    given = _merged(parameter_and_buffer_dicts)
    slots = dict(_slots(module))
    if strict and set(given) != set(slots):
        missing, unexpected = sorted(set(slots) - set(given)), sorted(set(given) - set(slots))
        raise OnefoldRuntimeError(
            f"functional_call: missing keys {missing}, unexpected keys {unexpected}; with "
            "strict=True the names must be those of the module"
        )
    changed = {name: given[name] for name in slots if name in given}
    if tie_weights:
        new = {id(slots[name][0][slots[name][1]]): tensor for name, tensor in changed.items()}
        for name, (table, key) in slots.items():
            changed.setdefault(name, new.get(id(table[key]), table[key]))
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced([(*slots[name], tensor) for name, tensor in changed.items()]):
        return module(*positional, **(kwargs or {}))


def _merged(dicts: Tensors | Sequence[Tensors]) -> dict[str, Tensor]:
    given: dict[str, Tensor] = {}
    for part in [dicts] if isinstance(dicts, Mapping) else dicts:
        twice = sorted(given.keys() & part.keys())
        if twice:
            raise OnefoldRuntimeError(f"functional_call: {twice} are given in more than one dict")
        given.update(part)
    return given


def _slots(module: Module) -> Iterator[tuple[str, tuple[dict[str, Any], str]]]:
    """The full name, table and key of each parameter and buffer, shared ones under every name."""
    for prefix, part in module.named_modules(remove_duplicate=False):
        for table in (part._parameters, part._buffers):
            for key, tensor in table.items():
                if tensor is not None:
                    yield f"{prefix}.{key}" if prefix else key, (table, key)


@contextmanager
def _replaced(changes: Sequence[tuple[dict[str, Any], str, Tensor]]) -> Iterator[None]:
    before = [(table, key, table[key]) for table, key, _ in changes]
    try:
        for table, key, tensor in changes:
            table[key] = tensor
        yield
    finally:
        for table, key, tensor in before:
            table[key] = tensor
