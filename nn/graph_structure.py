"""The structure of a graph's modules that a compiled program depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import torch

from ..engine.global_mode import mode_now
from ..engine.grad_attributes import hooks_on
from ..engine.meta import Meta
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError, OnefoldTypeError
from ..graph.graph_config import GraphModule
from ..optim.optimizer import Optimizer
from .module import Module

_KINDS = {"_parameters": "parameter", "_buffers": "buffer", "_modules": "module"}

_PACKAGE = f"{__name__.partition('.')[0]}."

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


class Structure:
    """The modules of a graph at its latest compilation, and a key of what may change in them."""

    def __init__(self) -> None:
        self._modules: list[Module] = []
        self._settings: list[Setting] = []

    def read(self, modules: Iterable[Module]) -> None:
        """Take these modules, and all below them."""
        self._modules[:] = [module for top in modules for module in top.modules()]
        self._settings[:] = _settings_of(self._modules)

    def key(self, optimizers: Iterable[Optimizer]) -> tuple[object, ...]:
        """A key of what may change between calls.

        Those are the dtype and layout of new tensors; modes, settings, hooks, submodules,
        parameters and buffers of the modules; and whether parameters are frozen, clipped or have
        hooks.
        """
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        params = [param for group in groups for param in group["params"]]
        return (
            torch.get_default_dtype(),
            mode_now(),
            *[_of(module) for module in self._modules],
            tuple([fields.get(name) for fields, name in self._settings]),
            *[param.node is None for param in params],
            *[group.get("clip_grad_max_norm") is not None for group in groups],
            *hooks_on(params),
        )


def _of(module: Module) -> tuple[object, ...]:
    fields = module.__dict__
    view = fields.get("_graph_view")
    return (
        fields["training"],
        view and view.settings,
        *fields["_modules"].values(),
        # Their identities: programs keep them, so that no later one can have the same.
        *map(id, fields["_parameters"].values()),
        *map(id, fields["_buffers"].values()),
        *[hook for table in HOOKS for hook in fields[table]],
    )


# The attributes of a layer, and the name of one that is a number.
Setting: TypeAlias = tuple[Mapping[str, object], str]


def _settings_of(modules: Iterable[Module]) -> list[Setting]:
    """The numbers of the package's own layers that may change, such as the p of a dropout.

    Numbers of other modules are left out: the program may count or measure something with them.
    Integers other than 0 and 1 are sizes.
    """
    return [
        (vars(module), name)
        for module in modules
        if type(module).__module__.startswith(_PACKAGE)
        for name, value in vars(module).items()
        if value is None or type(value) is float or (type(value) is int and value in (0, 1))
    ]


class Tables:
    """The submodules, parameters, buffers and hooks of modules, for quick comparison."""

    def __init__(self, modules: Iterable[Module]) -> None:
        tables = [module.__dict__[name] for module in modules for name in (*_KINDS, *HOOKS)]
        self._empty = [table for table in tables if not table]
        self._filled = [(table, [*map(id, table.values())]) for table in tables if table]
        self._held = [[*table.values()] for table in tables]  # so their identities stay theirs

    def held(self) -> set[int]:
        """The ids of their contents."""
        return {id(value) for values in self._held for value in values}

    def same(self) -> bool:
        """Whether the contents are unchanged."""
        if any(self._empty):
            return False
        return all([*map(id, table.values())] == before for table, before in self._filled)


@contextmanager
def same_tables(modules: dict[str, Module]) -> Iterator[Callable[[], None]]:
    """A check that raises if a module has gained or lost an attribute, which an error undoes."""
    kept = [("", "module", modules, dict(modules))] + [
        (f"{path}.", kind, module.__dict__[table], dict(module.__dict__[table]))
        for lead, top in modules.items()
        for path, module in top.named_modules(prefix=lead)
        for table, kind in _KINDS.items()
    ]

    def check() -> None:
        for lead, kind, now, before in kept:
            for name in [*now, *before]:
                if now.get(name) is not before.get(name):
                    raise OnefoldRuntimeError(
                        f"build() assigned {lead}{name}, a {kind}. A capture runs build() once, "
                        "for all later calls, so assign it in __init__; change what a parameter "
                        f"or buffer holds in place, with {lead}{name}.copy_(value)"
                    )

    try:
        yield check
    except BaseException:
        for _, _, now, before in kept:
            now.clear()
            now.update(before)
        raise


Tensors = dict[str, Tensor]  # parameters and buffers, by path


def walk(modules: Mapping[str, Module]) -> tuple[Tensors, dict[int, str], dict[int, GraphModule]]:
    """The tensors of all modules, and by the modules' identities their paths and settings."""
    tensors: Tensors = {}
    paths: dict[int, str] = {}
    views: dict[int, GraphModule] = {}
    for lead, top in modules.items():
        for path, module in top.named_modules(prefix=lead):
            paths[id(module)] = path
            if "_graph_view" in module.__dict__:
                views[id(module)] = module.__dict__["_graph_view"]
        for name, tensor in [*top.named_parameters(), *top.named_buffers()]:
            tensors[f"{lead}.{name}"] = tensor
    return tensors, paths, views


# What there is a compiled graph for: the inputs' form and metas, modes, and the graph's settings.
Signature: TypeAlias = tuple[object, tuple[Meta, ...], tuple[object, ...], object]


def check_inputs(
    name: str, compiled: Iterable[Signature], form: object, metas: Sequence[Meta]
) -> None:
    """Raise OnefoldTypeError unless inputs differ from those of a compiled graph only in shape."""
    first = next(iter(compiled), None)
    if first is None:
        return
    before_form, before, *_ = first
    if form != before_form:
        raise OnefoldTypeError(
            f"{name} was compiled for inputs nested as {before_form}, but was called with {form}; "
            "make another graph for them"
        )
    for index, (old, new) in enumerate(zip(before, metas, strict=True)):
        if old.dtype != new.dtype:
            raise OnefoldTypeError(
                f"{name} was compiled for an input {index} of dtype {old.dtype}, but was called "
                f"with {new.dtype}; convert it with .to({old.dtype}), or make another graph"
            )
