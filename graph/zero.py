"""ZeRO: selects the parameters to split along broadcast axes, and when they are gathered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from ..distributed.comm_log import table
from ..engine.commit import restored
from ..engine.meta import Meta
from ..engine.sbp import NdSbp, short, split
from ..engine.tensor import Tensor
from .graph_config import ZeroSettings
from .ir import Program, Variable
from .passes.zero_sharding import gather_parameters, shard_gradients
from .stored_layouts import lay_out


@dataclass(frozen=True)
class ZeroPlan:
    """The parameters that are split: by path, how each is laid out without ZeRO and with it."""

    whole: Mapping[str, Meta]
    targets: Mapping[str, Meta]

    def __str__(self) -> str:
        rows = [("parameter", "shape", "from", "to", "largest shard")]
        for path, target in self.targets.items():
            ends = short(self.whole[path].nd_sbp), short(target.nd_sbp)
            rows.append((path, str([*target.shape]), *ends, str(prod(target.local_shape(0)))))
        return table(rows)


def plan_zero(
    params: Mapping[str, Meta],
    shard_min_size: int = 1024,
    gradients: Mapping[str, Meta] | None = None,
) -> ZeroPlan:
    """Choose which of these parameters to split, and how.

    A parameter is split along the axes where it is broadcast to several ranks, if a dim can be
    split so that no shard has fewer than `shard_min_size` elements. Where the gradient's layout is
    given and is partial along some of the axes, only those are taken: along the others every rank
    makes the same gradient, and splitting would add communication. Of the dims those come first
    whose shards each rank has already, then those that divide evenly, then the lowest. Arithmetic
    on metas alone. Source: Rajbhandari et al., "ZeRO" (2020).

    >>> p = onefold.placement("cpu", [0, 1])
    >>> meta = onefold.zeros(64, 32, placement=p, sbp=onefold.sbp.broadcast).meta
    >>> print(plan_zero({"weight": meta}))
    parameter  shape     from  to    largest shard
    weight     [64, 32]  (B)   (S0)  1024
    """
    targets = {}
    for path, meta in params.items():
        nd_sbp = split_layout(meta, shard_min_size, (gradients or {}).get(path))
        if nd_sbp != meta.nd_sbp:
            targets[path] = meta.like(nd_sbp=nd_sbp)
    return ZeroPlan({path: params[path] for path in targets}, targets)


def split_layout(
    meta: Meta, shard_min_size: int, gradient: Meta | None = None, dim: int | None = None,
    only_axes: Sequence[int] | None = None,
) -> NdSbp:  # fmt: skip
    """The layout of one parameter as `plan_zero` chooses it, or among splits of a dim, or axes."""
    if meta.placement is None or any(sbp.is_partial for sbp in meta.nd_sbp):
        return meta.nd_sbp
    mesh = meta.placement.shape
    axes = [a for a, sbp in enumerate(meta.nd_sbp) if sbp.is_broadcast and mesh[a] > 1]
    if only_axes is not None:
        axes = [axis for axis in axes if axis in only_axes]
    if gradient is not None and gradient.placement is meta.placement:
        axes = [a for a in axes if gradient.nd_sbp[a].is_partial] or axes
    nd_sbp = meta.nd_sbp
    for axis in axes:
        nd_sbp = _split_along(axis, meta.shape, mesh, nd_sbp, shard_min_size, dim)
    return nd_sbp


def _split_along(
    axis: int,
    shape: tuple[int, ...],
    mesh: tuple[int, ...],
    nd_sbp: NdSbp,
    shard_min_size: int,
    only: int | None,
) -> NdSbp:
    """`nd_sbp` with the best split along `axis`, or unchanged."""
    choices = []
    for dim in range(len(shape)):
        if only not in (None, dim):
            continue
        candidate = (*nd_sbp[:axis], split(dim), *nd_sbp[axis + 1 :])
        parts = [1] * len(shape)
        for sbp, ranks in zip(candidate, mesh, strict=True):
            if sbp.is_split:
                parts[sbp.dim] *= ranks
        smallest = prod(size // count for size, count in zip(shape, parts, strict=True))
        if smallest >= shard_min_size:
            # Splits nest in the order of the axes, so one before another moves what that one holds.
            moves = split(dim) in nd_sbp[axis + 1 :]
            choices.append((moves, shape[dim] % parts[dim] != 0, dim, candidate))
    return min(choices, key=lambda choice: choice[:3])[3] if choices else nd_sbp


@dataclass(frozen=True, eq=False)
class _Split:
    """A parameter that is split, and its two layouts."""

    tensor: Tensor
    whole: Meta
    target: Meta


class Zero:
    """ZeRO in one graph; with `settings` None it does nothing.

    The layouts are decided when the graph is compiled first and then stay.
    """

    def __init__(self, settings: ZeroSettings | None) -> None:
        self.settings = settings
        self._split: dict[str, _Split] = {}

    @property
    def stored(self) -> bool:
        """Whether parameters are split between calls too."""
        return self.settings is not None and self.settings.stage == 3

    @property
    def stored_as_is(self) -> bool:
        """Whether ops meet the parameters as they are stored, never gathered for them."""
        return self.settings is not None and self.stored and not self.settings.shard_restore_level

    @property
    def targets(self) -> dict[str, Meta]:
        """By path, the layouts of what is split; empty before the graph is compiled."""
        return {path: each.target for path, each in self._split.items()}

    def decide(self, program: Program) -> bool:
        """Decide on the parameters with a gradient in the program; whether there are new ones."""
        if self.settings is None:
            return False
        ends = {
            variable.value.name: (variable, grad)
            for variable, grad in program.gradients
            if not self._knows(variable)
        }
        params = {path: variable.value.meta for path, (variable, _) in ends.items()}
        gradients = {path: grad.meta for path, (_, grad) in ends.items()}
        plan = plan_zero(params, self.settings.shard_min_size, gradients)
        for path, (variable, _) in ends.items():
            self._split.pop(path, None)
            if path in plan.targets:
                self._split[path] = _Split(variable.tensor, plan.whole[path], plan.targets[path])
        return bool(plan.targets)

    def _knows(self, variable: Variable) -> bool:
        """Whether its layout is decided, which is not so for a parameter that was replaced."""
        found = self._split.get(variable.value.name)
        return (
            found is not None
            and found.tensor is variable.tensor
            and variable.value.meta in (found.whole, found.target)
        )

    @contextmanager
    def captured_whole(self) -> Iterator[None]:
        """A block in which parameters that are stored split appear whole, for a capture."""
        split = [] if self.stored_as_is else self._split.values()
        found = [each for each in split if each.tensor.meta is each.target]
        before = [each.tensor.shards for each in found]

        def split_again() -> None:
            for each, shards in zip(found, before, strict=True):
                each.tensor.shards, each.tensor.meta = shards, each.target

        with restored(split_again):
            for each in found:
                # Shards of their own, so that an alias that was detached before is known as split.
                each.tensor.shards, each.tensor.meta = (*each.tensor.shards,), each.whole
            yield

    def rewrite(self, program: Program) -> Program:
        """The program with its gradients, and in stage 3 its parameters, in shards."""
        if self.settings is None or self.settings.stage == 1:
            return program
        targets = self.targets
        program = shard_gradients(program, targets)
        if self.stored and not self.stored_as_is:
            keep = self.settings.shard_restore_level == 2
            return gather_parameters(program, targets, keep)
        return program

    def store(self) -> None:
        """Split the parameters permanently, if the stage requires it."""
        if self.stored:
            for each in self._split.values():
                lay_out(each.tensor, each.target)

    def end(self) -> None:
        """Restore the layouts of parameters that are stored split."""
        for each in self._split.values():
            if each.tensor.meta is each.target:
                lay_out(each.tensor, each.whole)

    def update_layouts(self) -> dict[str, Meta]:
        """By path, the layouts of the parameters of which each rank updates its shards alone."""
        return {} if self.stored else self.targets
