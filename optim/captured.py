"""Captured: the updates of optimizers as the last steps of a graph's program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypedDict

import torch

from ..distributed.world import world
from ..engine.commit import Write, finish
from ..engine.meta import Meta
from ..engine.tensor import Shards, Tensor, from_shards
from ..errors import OnefoldRuntimeError, user_line
from ..graph.cuda_graphs.recorded_step import Recordable
from ..graph.ir import HOST, UPDATE, Clipping, Exchanges, ProgramStep, Value
from ..graph.update import Trained, Written
from .clip import clip_factor, clipped, norm_of, total_norm, unless_one
from .device_scalar import DeviceScalar, Given
from .grad_scaler import StaticGradScaler
from .optimizer import Group, Optimizer, Part, State, rate_of
from .recorded_update import RecordedUpdate, Updated
from .tensor_norms import exchanges

Pending = Callable[..., Iterable[Write]]  # what a step is still to write, of its inputs
NUMBER = Meta.of((), torch.float64, device=torch.device("cpu"))  # wherever it is at a run


class Updating:
    """Adds the updates of optimizers, with clipping and unscaling, to a program.

    What may change from call to call is read when the steps run: learning rates and other options,
    the counts of steps, the scale.
    """

    def __init__(
        self,
        optimizers: Sequence[Optimizer],
        scaler: StaticGradScaler | None,
        in_backward: bool = False,
    ) -> None:
        """`in_backward` says whether parameters are updated before all gradients are made.

        Raises OnefoldRuntimeError for an optimizer that has step hooks.
        """
        if hooks := [each for each in optimizers if each.has_step_hooks]:
            raise OnefoldRuntimeError(
                f"a graph updates the parameters of {type(hooks[0]).__name__} without a call of "
                "its step(), so hooks of register_step_pre_hook or register_step_post_hook would "
                "not be called; remove them, and do this before or after the call of the graph"
            )
        self._optimizers = optimizers
        self._scaler = scaler
        self._in_backward = in_backward

    def __call__(
        self,
        trained: Sequence[Trained],
        clippings: Sequence[Clipping],
        numbers: Iterator[int],
    ) -> Written:
        """The steps: those that may raise an error come before those that change anything.

        Raises OnefoldRuntimeError where the first update needs all gradients, and they are not
        there yet.
        """
        if self._in_backward:
            self._check_needs_own(clippings)
        writing = _Writing(numbers)
        of = {id(each.owner): each for each in trained}
        scale = found = None
        if self._scaler is not None:
            scale, found = writing.unscale(self._scaler, [each.gradient for each in trained])
        norms = [writing.clip(clipping, of, scale) for clipping in clippings]
        parts = [
            (optimizer, group, [of[id(param)] for param in group["params"] if id(param) in of])
            for optimizer in self._optimizers
            for group in optimizer.param_groups
        ]
        factors = [writing.limit(group, mine, scale) if mine else None for _, group, mine in parts]
        if self._scaler is not None and found is not None:
            writing.adapt(self._scaler, found)
        for (optimizer, group, mine), factor in zip(parts, factors, strict=True):
            for turn in sorted({each.turn for each in mine}):
                now = [each for each in mine if each.turn == turn]
                writing.update(optimizer, group, now, factor, found)
        return Written(writing.steps, writing.states, norms, frozenset(writing.copied))

    def _check_needs_own(self, clippings: Sequence[Clipping]) -> None:
        """Raise OnefoldRuntimeError where an update needs other gradients than its own."""
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        if clippings:
            what = "clip_grad_norm_ inside build()"
        elif any(group.get("clip_grad_max_norm") is not None for group in groups):
            what = "clip_grad_max_norm of a parameter group"
        elif self._scaler is not None and self._scaler.may_skip:
            what = "a GradScaler, which skips steps whose gradients are not finite,"
        else:
            return
        raise OnefoldRuntimeError(
            "config.enable_optimizer_in_backward updates parameters before all gradients are made, "
            f"but {what} needs them all before the first update; leave one of the two out"
        )


@dataclass(frozen=True, eq=False)
class GroupUpdate(Recordable):
    """The pending writes of a group's update, as a function of the inputs of its step.

    `metas` are those of parameters, gradients and copies; a parameter without a copy has none for
    it. A scale, and whether the update is skipped, are given before them where they are `scaled`
    and checked.
    """

    updated: Updated
    metas: tuple[Sequence[Meta], Sequence[Meta], Sequence[Meta | None]]
    scaled: bool

    def __call__(self, *given: Any) -> Iterable[Write]:
        """`Optimizer.apply`."""
        part = self._part(given, ())
        scale = None if part.given.scale is None else unless_one(part.given.scale)
        return self.updated.optimizer.apply(
            part.group, self.updated.owners, part.params, part.grads,
            part.given._replace(scale=scale), part.copies,
        )  # fmt: skip

    def why_not(self) -> str:
        return self.updated.why_not_recorded()

    def record(self) -> RecordedUpdate | None:
        return RecordedUpdate.of(self.updated, self._part)

    def _part(self, given: Sequence[Any], states: Sequence[State]) -> Part:
        rate, *shards = given
        rest = iter(shards)
        scale = DeviceScalar(next(rest)[0]) if self.scaled else None
        found = DeviceScalar(next(rest)[0]) if self.updated.checked else None
        params, grads = ([from_shards(next(rest), m) for m in metas] for metas in self.metas[:2])
        copies = [None if m is None else from_shards(next(rest), m) for m in self.metas[2]]
        numbers = Given(0.0 if rate is None else rate[0], scale, found)
        return Part(self.updated.group, params, grads, states, numbers, copies)


class Exchanging(TypedDict, total=False):
    """Fields of a `ProgramStep`."""

    host: str
    exchanges: Exchanges


class _Writing:
    """The steps that are written for one program."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._line = user_line()
        self.steps: list[ProgramStep] = []
        self.states: list[Value] = []
        self.copied: set[int] = set()

    def unscale(
        self, scaler: StaticGradScaler, gradients: Sequence[Value]
    ) -> tuple[Value, Value | None]:
        """The factor of gradients, and whether the update is skipped."""
        factor = self._value(NUMBER)
        self._step("unscale_factor", HOST, [], [factor], partial(_unscale_factor, scaler))
        if not scaler.may_skip:
            return factor, None
        found = self._value(NUMBER)
        run = partial(_found_inf, scaler, [value.meta for value in gradients])
        self._step("unscale", scaler, gradients, [found], run, **_exchanging(gradients))
        return factor, found

    def clip(self, clipping: Clipping, of: dict[int, Trained], scale: Value | None) -> Value:
        """The norm of gradients that are clipped together; `of` then contains the clipped ones."""
        params = [id(param) for param in clipping.params]
        grads = [of[param].gradient for param in params]
        norm = self._value(
            Meta.of((), torch.get_default_dtype(), device=torch.device("cpu")), "norm"
        )
        made = [self._value(grad.meta) for grad in grads]
        given = grads if scale is None else [scale, *grads]
        run = partial(_clip_norm, clipping, [grad.meta for grad in grads], scale is not None)
        attrs = (clipping.max_norm, clipping.norm_type)
        how = _exchanging(grads)
        if clipping.error_if_nonfinite:
            how = {"host": "reads the norm of gradients"}
        self._step(
            "clip_grad_norm_", clipping, given, [norm, *made], run,
            several=True, attrs=attrs, line=clipping.line, **how,
        )  # fmt: skip
        for param, value in zip(params, made, strict=True):
            of[param] = replace(of[param], gradient=value)
        return norm

    def adapt(self, scaler: StaticGradScaler, found: Value) -> None:
        """The scale of the next call."""
        self._writing_step("adapt_scale", scaler, [found], partial(_adapt, scaler))

    def limit(self, group: Group, trained: Sequence[Trained], scale: Value | None) -> Value | None:
        """The factor of a group's gradients, which are clipped if its options say so."""
        if group.get("clip_grad_max_norm") is None:
            return scale
        grads = [each.gradient for each in trained]
        factor = self._value(NUMBER)
        run = partial(_clip, group, [value.meta for value in grads])
        before = [] if scale is None else [scale]
        self._step(
            "clip_factor", "clip_factor", [*grads, *before], [factor], run,
            frozen=partial(_limits, group), **_exchanging(grads),
        )  # fmt: skip
        return factor

    def update(
        self,
        optimizer: Optimizer,
        group: Group,
        trained: Sequence[Trained],
        scale: Value | None,
        found: Value | None,
    ) -> None:
        """One group's update, by gradients times a scale."""
        grads = [each.gradient for each in trained]
        rate = self._value(NUMBER)
        self._step("learning_rate", HOST, [], [rate], partial(_rate, group))
        params = [each.value for each in trained]
        kept = self._states(optimizer, group, trained)
        owners = [each.owner for each in trained]
        copies = [each.copy if optimizer.writes_copies else None for each in trained]
        given = [copy for copy in copies if copy is not None]
        self.copied |= {copy.number for copy in given}
        metas = (
            [each.meta for each in params], [each.meta for each in grads],
            [None if copy is None else copy.meta for copy in copies],
        )  # fmt: skip
        updated = Updated(optimizer, group, owners, found is not None)
        self._writing_step(
            type(optimizer).__name__.lower(),
            optimizer,
            [rate, *(n for n in (scale, found) if n is not None), *params, *grads, *given, *kept],
            GroupUpdate(updated, metas, scale is not None),
            writes=(*params, *given, *kept),
        )

    def _states(
        self, optimizer: Optimizer, group: Group, trained: Sequence[Trained]
    ) -> list[Value]:
        """The state of each parameter; a number of steps takes no device memory."""
        found = []
        for each in trained:
            for key in optimizer.state_names(group) or ():
                if key not in optimizer.numbers:
                    found.append(self._value(each.value.meta, f"{each.name}-{key}"))
        self.states += found
        return found

    def _value(self, meta: Meta, name: str = "") -> Value:
        return Value(next(self._numbers), meta, name)

    def _step(
        self,
        name: str,
        origin: object,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        run: Callable[..., object],
        several: bool = False,
        writes: tuple[Value, ...] = (),
        attrs: tuple[float, ...] = (),
        line: str = "",
        pending: Pending | None = None,
        host: str = "",
        frozen: Callable[[], object] | None = None,
        exchanges: Exchanges | None = None,
    ) -> None:
        self.steps.append(
            ProgramStep(
                name, origin, tuple(inputs), attrs, tuple(outputs), run, several=several,
                scope=UPDATE, line=line or self._line, repeatable=False, writes=writes,
                pending=pending, host=host, frozen=frozen, exchanges=exchanges,
            )
        )  # fmt: skip

    def _writing_step(
        self,
        name: str,
        origin: object,
        inputs: Sequence[Value],
        pending: Pending,
        writes: tuple[Value, ...] = (),
    ) -> None:
        """A step that consists of the writes that `pending` returns."""
        run = partial(_finished, pending)
        self._step(name, origin, inputs, [], run, several=True, writes=writes, pending=pending)


def _exchanging(gradients: Sequence[Value]) -> Exchanging:
    """The boxings by which a number of all ranks' gradients is computed between processes."""
    metas = [grad.meta for grad in gradients if grad.meta.placement is not None]
    if not world().launched or not metas:
        return {}
    if any(len(meta.global_placement.flat_ranks) < world().size for meta in metas):
        return {"host": "communicates with processes that have no part of the gradients"}
    return {"exchanges": exchanges}


# What the steps run on shards; `partial` gives the first arguments.


def _unscale_factor(scaler: StaticGradScaler) -> Shards:
    """`StaticGradScaler.factor`."""
    return (scaler.factor().value,)


def _found_inf(scaler: StaticGradScaler, metas: Sequence[Meta], *grads: Shards) -> Shards:
    """`StaticGradScaler.found_inf`."""
    return (scaler.found_inf(_tensors(grads, metas)).value,)


def _finished(pending: Pending, *given: object) -> tuple[()]:
    finish(pending(*given))
    return ()


def _adapt(scaler: StaticGradScaler, found: Shards) -> list[Write]:
    """`StaticGradScaler.adapt`."""
    return [partial(scaler.adapt, DeviceScalar(found[0]))]


def _clip_norm(
    clipping: Clipping, metas: Sequence[Meta], scaled: bool, *given: Shards
) -> tuple[Shards, ...]:
    """`clipped`."""
    scale = DeviceScalar(given[0][0]) if scaled else None
    grads = _tensors(given[scaled:], metas)
    limits = clipping.max_norm, clipping.norm_type, clipping.error_if_nonfinite
    total, found = clipped(grads, *limits, scale)
    return norm_of(total).shards, *[grad.shards for grad in found]


def _clip(group: Group, metas: Sequence[Meta], *given: Shards) -> Shards:
    """The factor by which the gradients of a group are multiplied to limit their norm."""
    count = len(metas)
    before = DeviceScalar(given[count][0]) if len(given) > count else None
    norm_type = group.get("clip_grad_norm_type", 2.0)
    total = total_norm(_tensors(given[:count], metas), norm_type, before)
    factor = clip_factor(total, group["clip_grad_max_norm"])
    return (factor.times(before).value,)


def _limits(group: Group) -> tuple[object, ...]:
    return group["clip_grad_max_norm"], group.get("clip_grad_norm_type", 2.0)


def _tensors(columns: Sequence[Shards], metas: Sequence[Meta]) -> list[Tensor]:
    return [from_shards(shards, meta) for shards, meta in zip(columns, metas, strict=True)]


def _rate(group: Group) -> tuple[float | torch.Tensor]:
    return (rate_of(group),)
