"""Table choice: which layers of a model a tensor axis splits, and into how many parts it can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from ..nn.linear import Linear
from ..nn.module import Module
from ..parallel.layout_plan import COLUMN, REPLICATE, ROW, TRANSFORMER, Plan, Rule, Style
from .model_units import Units


@dataclass(frozen=True)
class Table:
    """The rules that a model needs, as patterns and names of styles."""

    rules: tuple[tuple[str, str], ...]
    dims: tuple[int, ...]  # the sizes of the dims that are split
    sequence: bool  # whether what is between the layers may be split along a sequence

    def divides(self, parts: int) -> bool:
        """Whether every split dim can be cut into so many equal parts."""
        return bool(self.dims) and all(size % parts == 0 for size in self.dims)


def table_for(model: Module, plan: Plan | None, units: Units) -> Table:
    """The rules of `plan` that the model's parameters match.

    Without a plan those of `TRANSFORMER`. If a parameter has no rule there, the linear layers are
    split by columns and by rows in turn, and all else is replicated. Raises OnefoldValueError where
    a given plan does not match.
    """
    params = dict(model.named_parameters(remove_duplicate=False))
    if plan is not None:
        return _table(params, plan, True)
    try:
        return _table(params, TRANSFORMER, True)
    except OnefoldValueError:
        return _table(params, _in_turn(model, units), False)


def _table(params: Mapping[str, Tensor], plan: Plan, sequence: bool) -> Table:
    styles = plan.styles(params)
    used: dict[str, Style] = {}
    firsts = [_first(plan, name) for name in params]
    for rule in plan:
        if any(each is rule for each in firsts):
            used.setdefault(rule.pattern, rule.style)
    splits = [(params[name], style.sbp(params[name])) for name, style in styles.items()]
    dims = {tensor.shape[sbp.dim] for tensor, sbp in splits if sbp.is_split}
    rules = tuple((pattern, style.name) for pattern, style in used.items())
    return Table(rules, tuple(sorted(dims)), sequence)


def _first(plan: Plan, name: str) -> Rule | None:
    return next((rule for rule in plan if fnmatchcase(name, rule.pattern)), None)


def _in_turn(model: Module, units: Units) -> Plan:
    """Pairs of linear layers, the first by columns, the second by rows.

    Both of a pair are in one module, where modules have several of them: layers that are alike are
    then split alike, and have one rule.
    """
    layers = [name for name, module in model.named_modules() if isinstance(module, Linear)]
    inside: dict[str, list[str]] = {}
    for name in layers:
        inside.setdefault(name.rpartition(".")[0], []).append(name)
    groups = [*inside.values()]
    if max(map(len, groups), default=0) < 2:
        groups = [layers]
    styles = {
        name: (COLUMN, ROW)[at % 2]
        for group in groups
        for at, name in enumerate(group[: len(group) // 2 * 2])
    }
    params = {name: name.rpartition(".")[0] for name, _ in model.named_parameters()}
    rules: dict[str, Style] = {}
    for name, style in styles.items():
        own, shared = f"{name}.*" if name else "*", _pattern(name, units)
        matched = {styles.get(owner) for each, owner in params.items() if fnmatchcase(each, shared)}
        rules[shared if matched == {style} else own] = style
    found = [Rule(pattern, style, optional=True) for pattern, style in rules.items()]
    return Plan([*found, Rule("*", REPLICATE, optional=True)])


def _pattern(name: str, units: Units) -> str:
    """What the parameters of a module in a list of layers have in common with those of the others.

    >>> units = Units(("layers.0", "layers.1"), {}, "layers", ())
    >>> _pattern("layers.1.mlp.up", units)
    'layers.*.mlp.up.*'
    """
    lead = f"{units.layers}." if units.layers else ""
    if units.layers is None or not name.startswith(lead):
        return f"{name}.*"
    rest = name.removeprefix(lead).partition(".")[2]
    return f"{lead}*.{rest}.*" if rest else f"{name}.*"
