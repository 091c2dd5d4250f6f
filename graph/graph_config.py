"""The user's settings of a graph and its modules: stages, accumulation, precision, memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from ..engine.placement import Placement
from ..errors import OnefoldTypeError, OnefoldValueError, user_line
from .amp import DTYPES
from .schedules.named_schedules import schedule_named
from .unsupported import CONFIG, Unsupported, refuse


@dataclass(frozen=True)
class ZeroSettings:
    """What `enable_zero` asked for."""

    stage: int
    shard_min_size: int
    shard_restore_level: int


class GraphConfig:
    """The settings of one graph (`self.config`)."""

    __slots__ = (
        "_amp",
        "_fuse_add",
        "_layout_search",
        "_micro_batches",
        "_schedule",
        "training",
        "zero",
    )

    def __init__(self) -> None:
        self._micro_batches = 1
        self._schedule: str | None = None
        self._amp: torch.dtype | None = None
        self._layout_search = False
        self.zero: ZeroSettings | None = None  # set by enable_zero
        self._fuse_add = False
        self.training = False  # set by the graph: whether a call trains

    def __getattr__(self, name: str) -> Any:
        raise refuse(CONFIG, "GraphConfig", name)

    @property
    def micro_batches(self) -> int:
        return self._micro_batches

    def set_gradient_accumulation_steps(self, value: int) -> None:
        """Cut every call's inputs along dim 0 into this many micro-batches.

        Gradients are the mean over them; a returned scalar gets one entry for each.
        """
        if isinstance(value, bool) or not isinstance(value, int):
            raise OnefoldTypeError(
                f"set_gradient_accumulation_steps needs an integer, but got {value!r}"
            )
        if value < 1:
            raise OnefoldValueError(
                f"set_gradient_accumulation_steps needs at least 1 step, but got {value}"
            )
        self._micro_batches = value

    @property
    def schedule(self) -> str | None:
        return self._schedule

    def set_schedule(self, name: str | None) -> None:
        """Choose the schedule by which a graph with stages runs its micro-batches.

        `graph/schedules/named_schedules.py` lists them; None takes 1f1b, or, where ranks have
        several stages, interleaved or zb-v by how the stages lie. Raises OnefoldValueError, which
        lists them too, for an unknown name.
        """
        if name is not None:
            schedule_named(name)
        self._schedule = name

    @property
    def amp_dtype(self) -> torch.dtype | None:
        """The dtype of matrix products under `enable_amp`; None without it."""
        return self._amp

    def enable_amp(self, mode: bool = True, *, dtype: torch.dtype = torch.float16) -> None:
        """Run matrix products in float16 or bfloat16, and what would lose digits in float32.

        Other ops run in the widest dtype of their inputs (`graph/amp.py` has the lists).
        Parameters, their gradients and the optimizers' state stay float32. With float16 small
        gradients vanish unless the loss is scaled. Source: Micikevicius et al., "Mixed precision
        training" (2018).
        """
        if not isinstance(mode, bool):
            raise OnefoldTypeError(f"enable_amp: mode must be a bool, but got {mode!r}")
        if not isinstance(dtype, torch.dtype):
            raise OnefoldTypeError(f"enable_amp: dtype must be a dtype, but got {dtype!r}")
        if dtype not in DTYPES:
            raise OnefoldValueError(
                f"enable_amp: dtype must be float16 or bfloat16, but got {dtype}"
            )
        self._amp = dtype if mode else None

    @property
    def layout_search(self) -> bool:
        """Whether `enable_layout_search` is on."""
        return self._layout_search

    def enable_layout_search(self, mode: bool = True) -> None:
        """Decide the layouts of all ops together, not one by one as eager does.

        The program that eager would run is improved until no op's other layout makes the modelled
        time of all boxing and ops shorter; layouts that were asked for (to_global, parameters,
        inputs, outputs, gradients) stay. Sums over ranks are also put off past linear ops where
        that saves bytes. Results are the same up to the order of sums.
        """
        if not isinstance(mode, bool):
            raise OnefoldTypeError(
                f"enable_layout_search: mode must be True or False, but got {mode!r}"
            )
        self._layout_search = mode

    def enable_zero(
        self,
        mode: bool = True,
        *,
        stage: int = 2,
        shard_min_size: int = 1024,
        shard_restore_level: int = 1,
    ) -> None:
        """Split what training keeps of broadcast parameters over their ranks.

        Stage 1 splits the optimizers' state: every rank updates its shards, which are gathered when
        the step ends. In stage 2 each gradient is also reduced to shards as soon as it is made, in
        every micro-batch. In stage 3 the parameters stay split between calls (their sbp changes)
        and are gathered where the program uses them: with `shard_restore_level` 1 once in forward
        and again in backward, with 2 once per micro-batch, with 0 not at all, so that ops take the
        layouts that cost least. Parameters whose shards would have fewer than `shard_min_size`
        elements stay as they are. A change holds from the next call on, which compiles anew.
        """
        if not isinstance(mode, bool):
            raise OnefoldTypeError(f"enable_zero: mode must be True or False, but got {mode!r}")
        _check_between("stage", stage, 1, 3)
        _check_between("shard_min_size", shard_min_size, 1, None)
        _check_between("shard_restore_level", shard_restore_level, 0, 2)
        self.zero = ZeroSettings(stage, shard_min_size, shard_restore_level) if mode else None

    @property
    def fuses_add(self) -> bool:
        """Whether `allow_fuse_add_to_output` was asked for."""
        return self._fuse_add

    def allow_fuse_add_to_output(self, mode: bool = True) -> None:
        """Add a product of matrices to something as it is made, where it is used for nothing else.

        Saves a pass over the sum. It is rounded once instead of twice, so that results may differ
        from eager's in the last digits: about 1e-6 of the greatest addend in float32.
        """
        self._fuse_add = _flag("allow_fuse_add_to_output", mode)

    def allow_fuse_model_update_ops(self, mode: bool = True) -> None:
        """Accepted for programs that ask: an update is always one call for a group's parameters."""
        _flag("allow_fuse_model_update_ops", mode)

    def allow_fuse_cast_scale(self, mode: bool = True) -> None:
        """Not offered: raises Unsupported for True."""
        if _flag("allow_fuse_cast_scale", mode):
            raise Unsupported(
                "GraphConfig.allow_fuse_cast_scale is not offered: gradients are cast to float32 "
                "inside the program, and unscaled after it, when those of all micro-batches are "
                "added up; leave it out, or scale with a power of two, which costs no digits"
            )

    @property
    def settings(self) -> tuple[Any, ...]:
        """What a compiled graph depends on."""
        return (
            self._micro_batches,
            self._schedule,
            self._amp,
            self._layout_search,
            self._fuse_add,
        )

    def __repr__(self) -> str:
        return (
            f"GraphConfig(training={self.training}, gradient_accumulation_steps="
            f"{self._micro_batches}, schedule={self._schedule!r}, amp={self._amp}, "
            f"layout_search={self._layout_search}, zero={self.zero}"
            f"{', fuse_add_to_output=True' * self._fuse_add})"
        )


def _flag(name: str, mode: Any) -> bool:
    if not isinstance(mode, bool):
        raise OnefoldTypeError(f"{name}: mode must be a bool, but got {mode!r}")
    return mode


def _check_between(name: str, value: Any, least: int, most: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise OnefoldTypeError(f"enable_zero: {name} must be an integer, but got {value!r}")
    if value < least or (most is not None and value > most):
        allowed = f"at least {least}" if most is None else f"one of {least} to {most}"
        raise OnefoldValueError(f"enable_zero: {name} must be {allowed}, but got {value}")


@dataclass(slots=True)  # so that a setting misspelled is an error
class GraphModule:
    """A module as graphs see it; `module.to(nn.graph.GraphModule)` gives it."""

    module: Any
    stage_id: int | None = field(default=None, init=False)
    stage_placement: Placement | None = field(default=None, init=False)
    line: str = field(default="", init=False)  # the user's, where the stage was set
    _checkpointing: bool = field(default=False, init=False)

    def set_stage(self, stage_id: int | None = None, placement: Placement | None = None) -> None:
        """Say which pipeline stage the module is, and the ranks to which its inputs go.

        A stage needs a number or a placement; with a placement every tensor that the module is
        called with is boxed there first.
        """
        if stage_id is None and placement is None:
            raise OnefoldValueError("set_stage needs a stage_id, a placement, or both")
        if stage_id is not None and (isinstance(stage_id, bool) or not isinstance(stage_id, int)):
            raise OnefoldTypeError(
                f"set_stage: stage_id must be an integer, but got {stage_id!r}; write "
                "set_stage(0, placement)"
            )
        if stage_id is not None and stage_id < 0:
            raise OnefoldValueError(f"set_stage: stage_id must be >= 0, but got {stage_id}")
        if placement is not None and not isinstance(placement, Placement):
            raise OnefoldTypeError(
                f"set_stage: placement must be an onefold.placement, but got {placement!r}"
            )
        self.stage_id = stage_id
        self.stage_placement = placement
        self.line = user_line()

    @property
    def activation_checkpointing(self) -> bool:
        """Whether the module's activations are made again in the backward pass, not kept.

        Of checkpointed modules inside each other the outermost counts. Random numbers repeat, and
        buffers change once. Source: Chen et al., "Training deep nets with sublinear memory cost"
        (2016).
        """
        return self._checkpointing

    @activation_checkpointing.setter
    def activation_checkpointing(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise OnefoldTypeError(f"activation_checkpointing must be a bool, but got {mode!r}")
        self._checkpointing = mode

    @property
    def settings(self) -> tuple[Any, ...]:
        """What a compiled graph depends on."""
        return self.stage_id, self.stage_placement, self._checkpointing

    def to(self, view: Any) -> Any:
        """`to(nn.Module)` gives the module back."""
        return self if view is GraphModule else self.module
