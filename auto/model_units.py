"""Units of a model: the modules that stages are made of, and a smaller model that is like it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ..nn.container import ModuleList, Sequential
from ..nn.module import Module

Kind: TypeAlias = object  # equal for modules that compute the same

ROOT = "model"  # the name under which a step's graph has its model
_EACH = 3  # modules of each kind that the smaller model keeps
_WORTH = 4  # modules fewer for which another model is made


@dataclass(frozen=True)
class Units:
    """The names of a model's units, and for each the one that stands for it in a smaller model."""

    names: tuple[str, ...]
    like: dict[str, str]
    layers: str | None  # the container that most of them are in
    present: tuple[str, ...]  # the units that the smaller model has
    # Of units of the smaller model those of the whole that they are, where they are not themselves.
    whole: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def first_layer(self) -> str:
        """The first entry of that container, which is the same one in the smaller model."""
        return f"{self.layers}.0" if self.layers else "0"


def units_of(model: Module) -> Units:
    """The units of a model: the entries of its largest list of layers, and the rest of the model.

    A module that is not in the list, and in which the list is not, is one unit.
    """
    layers = _layers(model)
    names = tuple(_walk(model, "", layers))
    return Units(names, {name: name for name in names}, layers, names)


def shortened(model: Module, units: Units) -> Units:
    """Remove repetitions from the list of layers, in place.

    The units stay those of the whole model, and each has one that stands for it. Three of each kind
    are kept, in their order.
    """
    if units.layers is None:
        return units
    container = model.get_submodule(units.layers)
    assert isinstance(container, (ModuleList, Sequential))
    kinds = [kind_of(child) for child in container]
    kept: list[int] = []
    for index, kind in enumerate(kinds):
        if sum(kinds[other] == kind for other in kept) < _EACH:
            kept.append(index)
    if len(kinds) - len(kept) < _WORTH:
        return units
    lead = f"{units.layers}." if units.layers else ""
    names = [f"{lead}{name}" for name, _ in container.named_children()]
    # The one between two others of its kind: what the first and the last do may be special.
    stands: dict[Kind, str] = {}
    whole: dict[str, tuple[str, ...]] = {}
    for kind in dict.fromkeys(kinds):
        places = [at for at, index in enumerate(kept) if kinds[index] == kind]
        stands[kind] = f"{lead}{places[len(places) // 2]}"
        every = tuple([name for name, each in zip(names, kinds, strict=True) if each == kind])
        whole |= {f"{lead}{at}": every for at in places}
        whole[f"{lead}{places[-1]}"], whole[f"{lead}{places[0]}"] = every[-1:], every[:1]
    like = dict(units.like) | {n: stands[k] for n, k in zip(names, kinds, strict=True)}
    for index in reversed([i for i in range(len(kinds)) if i not in kept]):
        del container[index]
    present = tuple(_walk(model, "", units.layers))
    return Units(units.names, like, units.layers, present, whole)


def kind_of(module: Module) -> Kind:
    """What modules that compute the same have in common: their tree, settings and shapes."""
    inner = tuple([(name, type(m), m.extra_repr()) for name, m in module.named_modules()])
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return inner, tuple([(name, tuple(x.shape), x.dtype) for name, x in tensors])


def _layers(model: Module) -> str | None:
    """The list with the most modules of one kind, by the elements of their parameters."""
    best, found = 0, None
    for name, module in model.named_modules():
        if not isinstance(module, (ModuleList, Sequential)):
            continue
        sizes: dict[Kind, list[int]] = {}
        for child in module:
            count = sum(p.numel() for p in child.parameters())
            sizes.setdefault(kind_of(child), []).append(count)
        most = max((sum(each) for each in sizes.values() if len(each) > 1), default=0)
        if most > best:
            best, found = most, name
    return found


def _walk(module: Module, path: str, layers: str | None) -> Iterator[str]:
    for name, child in module.named_children():
        full = f"{path}.{name}" if path else name
        above = layers is not None and (layers == full or layers.startswith(f"{full}."))
        if above:
            yield from _walk(child, full, layers)
        else:
            yield full
