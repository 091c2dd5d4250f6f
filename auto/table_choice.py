"""Table choice: which layers of a model a tensor axis splits, and into how many parts it can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from ..nn.linear import Linear
from ..nn.module import Module
from ..parallel.layout_plan import COLUMN, REPLICATE, ROW, TRANSFORMER, Plan, Rule, Style


@dataclass(frozen=True)
class Table:
    """The rules that a model needs, as patterns and names of styles."""

    rules: tuple[tuple[str, str], ...]
    dims: tuple[int, ...]  # the sizes of the dims that are split
    sequence: bool  # whether what is between the layers may be split along a sequence

    def divides(self, parts: int) -> bool:
        """Whether every split dim can be cut into so many equal parts."""
        return bool(self.dims) and all(size % parts == 0 for size in self.dims)


def table_for(model: Module, plan: Plan | None) -> Table:
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
        return _table(params, _in_turn(model), False)


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


def _in_turn(model: Module) -> Plan:
    """Pairs of linear layers, the first by columns, the second by rows."""
    layers = [name for name, module in model.named_modules() if isinstance(module, Linear)]
    styles: Sequence[Style] = (COLUMN, ROW)
    pairs = len(layers) // 2 * 2
    rules = [
        Rule(f"{name}.*" if name else "*", styles[at % 2], optional=True)
        for at, name in enumerate(layers[:pairs])
    ]
    return Plan([*rules, Rule("*", REPLICATE, optional=True)])
