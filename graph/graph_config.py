"""The user's settings of a graph and its modules: stages, accumulation, precision, memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..engine.amp_rules import DTYPES
from ..engine.placement import Placement
from ..errors import OnefoldTypeError, OnefoldValueError, user_line
from .schedules.named_schedules import schedule_named
from .setting_checks import integer, strings, switch
from .unsupported import CONFIG, Unsupported, missing_attribute


@dataclass(frozen=True)
class ZeroSettings:
    """The settings of `enable_zero`."""

    stage: int
    shard_min_size: int
    shard_restore_level: int


@dataclass(slots=True, repr=False, eq=False)
class GraphConfig:
    """The settings of one graph (`self.config`), as its methods set them."""

    micro_batches: int = field(default=1, init=False)
    whole_inputs: tuple[str, ...] = field(default=(), init=False)  # parameters of build
    schedule: str | None = field(default=None, init=False)
    amp_dtype: torch.dtype | None = field(default=None, init=False)  # of matrix products
    layout_search: bool = field(default=False, init=False)
    searched_axis: int | None = field(default=None, init=False)  # of meshes; None: all
    layouts_ignored: bool = field(default=False, init=False)  # those that were asked for
    fuses_add: bool = field(default=False, init=False)
    cuda_graph: bool = field(default=False, init=False)
    captures_communication: bool = field(default=False, init=False)
    zero: ZeroSettings | None = field(default=None, init=False)
    updates_in_backward: bool = field(default=False, init=False)
    training: bool = field(default=False, init=False)  # set by the graph: whether a call trains

    def __getattr__(self, name: str) -> object:
        raise missing_attribute(CONFIG, "GraphConfig", name)

    def set_gradient_accumulation_steps(self, value: int, *, whole: Sequence[str] = ()) -> None:
        """Cut every call's inputs along dim 0 into this many micro-batches.

        Gradients are the mean over them; a returned scalar gets one entry for each. `whole` names
        the parameters of `build` whose tensors are no batch, such as the edges of a graph network:
        each micro-batch gets all of them.
        """
        whole_inputs = strings("set_gradient_accumulation_steps: whole", whole)
        self.micro_batches = integer("set_gradient_accumulation_steps: value", value, least=1)
        self.whole_inputs = whole_inputs

    def set_schedule(self, name: str | None) -> None:
        """Choose the schedule by which a graph with stages runs its micro-batches.

        `graph/schedules/named_schedules.py` lists them; None takes 1f1b, or, where ranks have
        several stages, interleaved or zb-v by how the stages lie. Raises OnefoldValueError, which
        lists them too, for an unknown name.
        """
        if name is not None:
            schedule_named(name)
        self.schedule = name

    def enable_amp(self, mode: bool = True, *, dtype: torch.dtype = torch.float16) -> None:
        """Run matrix products in float16 or bfloat16, and ops that would lose precision in float32.

        Other ops run in the widest dtype of their inputs (`engine/amp_rules.py` has the lists).
        Parameters, their gradients and the optimizers' state stay float32. With float16 small
        gradients vanish unless the loss is scaled. Source: Micikevicius et al., "Mixed precision
        training" (2018).
        """
        switch("enable_amp: mode", mode)
        if not isinstance(dtype, torch.dtype):
            raise OnefoldTypeError(f"enable_amp: dtype must be a dtype, but got {dtype!r}")
        if dtype not in DTYPES:
            raise OnefoldValueError(
                f"enable_amp: dtype must be float16 or bfloat16, but got {dtype}"
            )
        self.amp_dtype = dtype if mode else None

    def enable_auto_parallel(self, mode: bool = True, *, axis: int | None = None) -> None:
        """Choose the layouts of all ops together, not one by one as in eager mode.

        Of all legal layouts of all ops those are taken for which the modeled time of all boxing
        and ops is least. Layouts that were asked for (to_global, parameters, inputs, outputs,
        gradients) stay. Sums over ranks are also put off past linear ops where that saves bytes.
        Results are the same up to the order of sums. With `axis` layouts are decided along that
        axis of the meshes alone, which takes less time; along others they are those of eager.
        """
        if axis is not None:
            integer("enable_auto_parallel: axis", axis, least=0)
        self.searched_axis = axis
        self.layout_search = switch("enable_auto_parallel: mode", mode)

    def enable_layout_search(self, mode: bool = True) -> None:
        """`enable_auto_parallel` by another name."""
        self.layout_search = switch("enable_layout_search: mode", mode)

    def enable_auto_parallel_ignore_user_sbp_config(self, mode: bool = True) -> None:
        """Let `enable_auto_parallel` choose the layouts of parameters and in `build`, too.

        Parameters that the graph trains change their layout permanently when it is first compiled:
        their sbp changes, not their values. A `to_global` inside `build` then changes no layout,
        unless it changes the placement. Inputs, outputs and buffers stay. Raises
        OnefoldRuntimeError when the graph is compiled with `enable_zero`, which lays the
        parameters out itself.
        """
        self.layouts_ignored = switch("enable_auto_parallel_ignore_user_sbp_config: mode", mode)

    def enable_zero(
        self,
        mode: bool = True,
        *,
        stage: int = 2,
        shard_min_size: int = 1024,
        shard_restore_level: int = 1,
    ) -> None:
        """Split the training state of broadcast parameters over their ranks.

        Stage 1 splits the optimizers' state: every rank updates its shards, which are gathered when
        the step ends. In stage 2 each gradient is also reduced to shards as soon as it is made, in
        every micro-batch. In stage 3 the parameters stay split between calls (their sbp changes)
        and are gathered where the program uses them: with `shard_restore_level` 1 once in forward
        and again in backward, with 2 once per micro-batch, with 0 not at all, so that ops take the
        layouts that cost least. Parameters whose shards would have fewer than `shard_min_size`
        elements stay as they are. A change takes effect at the next call, which compiles the graph
        again.
        """
        switch("enable_zero: mode", mode)
        integer("enable_zero: stage", stage, least=1, most=3)
        integer("enable_zero: shard_min_size", shard_min_size, least=1)
        integer("enable_zero: shard_restore_level", shard_restore_level, least=0, most=2)
        self.zero = ZeroSettings(stage, shard_min_size, shard_restore_level) if mode else None

    def enable_cuda_graph(self, mode: bool = True, *, communication: bool = False) -> None:
        """Run calls as CUDA graphs, so that the host does not launch each kernel.

        The first call runs normally, the second prepares, the third captures, later ones replay
        what was captured, with the same results. The update is a CUDA graph of its own. What
        cannot be captured runs between CUDA graphs; `graph.plan(rank)` lists both, and
        `graph.cuda_graph_reason` says why the last call was not a replay. Inputs and results are
        copied. Source: CUDA's stream capture, as `torch.cuda.CUDAGraph` has it.

        With `communication` collectives of NCCL are captured, too. All ranks then agree on each
        call by a message between hosts, and replay only together. It has run on one GPU, not on
        several.
        """
        switch("enable_cuda_graph: mode", mode)
        switch("enable_cuda_graph: communication", communication)
        self.cuda_graph, self.captures_communication = mode, mode and communication

    def enable_optimizer_in_backward(self, mode: bool = True) -> None:
        """Update parameters during backward, as soon as their gradients are there.

        The memory of a gradient is then free before the next ones are made: at most about a
        sixteenth of the gradients, and the largest one, are there at a time. No bit of a result
        changes. An error in backward may come after some parameters have been updated. A call
        raises OnefoldRuntimeError where the first update needs all gradients: with clipping by
        norm, with a scaler that skips steps, and with stages. Source: PyTorch's tutorial "How to
        save memory by fusing the optimizer step into the backward pass".
        """
        self.updates_in_backward = switch("enable_optimizer_in_backward: mode", mode)

    def allow_fuse_add_to_output(self, mode: bool = True) -> None:
        """Fuse a matrix product with the addition that uses it, if it has no other use.

        Saves a pass over the sum. It is rounded once instead of twice, so that results may differ
        from eager's in the last digits: about 1e-6 of the greatest addend in float32.
        """
        self.fuses_add = switch("allow_fuse_add_to_output: mode", mode)

    def allow_fuse_model_update_ops(self, mode: bool = True) -> None:
        """Accepted for compatibility: an update is always one call for a group's parameters."""
        switch("allow_fuse_model_update_ops: mode", mode)

    def allow_fuse_cast_scale(self, mode: bool = True) -> None:
        """Not supported: raises Unsupported for True."""
        if switch("allow_fuse_cast_scale: mode", mode):
            raise Unsupported(
                "GraphConfig.allow_fuse_cast_scale is not offered: gradients are cast to float32 "
                "inside the program, and unscaled after it, when those of all micro-batches are "
                "added up; leave it out, or scale with a power of two, which costs no digits"
            )

    @property
    def settings(self) -> tuple[object, ...]:
        """What a compiled graph depends on."""
        options = self.amp_dtype, self.layout_search, self.fuses_add
        captured = self.cuda_graph, self.captures_communication, self.updates_in_backward
        layouts = self.layout_search and (self.layouts_ignored, self.searched_axis)
        return self.micro_batches, self.whole_inputs, self.schedule, *options, *captured, layouts

    def __repr__(self) -> str:
        return (
            f"GraphConfig(training={self.training}, gradient_accumulation_steps="
            f"{self.micro_batches}, schedule={self.schedule!r}, amp={self.amp_dtype}, "
            f"layout_search={self.layout_search}, zero={self.zero}"
            f"{', fuse_add_to_output=True' * self.fuses_add}"
            f"{', cuda_graph=True' * self.cuda_graph}"
            f"{', optimizer_in_backward=True' * self.updates_in_backward})"
        )


@dataclass(slots=True)  # so that a setting misspelled is an error
class GraphModule:
    """The settings of a module in graphs; `module.to(nn.graph.GraphModule)` returns it."""

    module: Any
    stage_id: int | None = field(default=None, init=False)
    _placement: Placement | None = field(default=None, init=False)
    line: str = field(default="", init=False)  # the user's, where the stage was set
    _checkpointing: bool = field(default=False, init=False)
    _saved: tuple[str, ...] = field(default=(), init=False)
    _offloading: bool = field(default=False, init=False)

    def set_stage(self, stage_id: int | None = None, placement: Placement | None = None) -> None:
        """Set the pipeline stage of the module, and the ranks to which its inputs go.

        Every tensor that the module is called with is boxed to that placement first. Without one
        it is the placement of the module's parameters, where all have the same. A parameter that
        modules of several stages share is on one of them; the others read a copy, made once in
        each call, and the gradients of all are added up.
        """
        if stage_id is None and placement is None:
            raise OnefoldValueError("set_stage needs a stage_id, a placement, or both")
        if stage_id is not None:
            integer(
                "set_stage: stage_id", stage_id, least=0, advice="; write set_stage(0, placement)"
            )
        if placement is not None and not isinstance(placement, Placement):
            raise OnefoldTypeError(
                f"set_stage: placement must be an onefold.placement, but got {placement!r}"
            )
        self.stage_id = stage_id
        self._placement = placement
        self.line = user_line()

    @property
    def stage_placement(self) -> Placement | None:
        """The placement given to `set_stage`, or that of the parameters of a module on a stage."""
        if self._placement is not None or self.stage_id is None:
            return self._placement
        found = {parameter.meta.placement for parameter in self.module.parameters()}
        return found.pop() if len(found) == 1 else None

    @property
    def activation_checkpointing(self) -> bool:
        """Whether the module's activations are recomputed in the backward pass, not kept.

        Of checkpointed modules inside each other the outermost counts. Random numbers repeat, and
        buffers change once. Source: Chen et al., "Training deep nets with sublinear memory cost"
        (2016).
        """
        return self._checkpointing

    @activation_checkpointing.setter
    def activation_checkpointing(self, mode: bool) -> None:
        self._checkpointing = switch("activation_checkpointing", mode)

    @property
    def saved_activations(self) -> tuple[str, ...]:
        """The activations that a checkpointed module saves nevertheless; none by default.

        An activation is named by the module inside in which it is made, the op, and from the second
        one of this name on a number: "attention.query.linear", "add_1". Entries are such names, or
        patterns (of fnmatch) of them. What matches nothing is an error when the graph is compiled;
        it lists the names that there are. Of nested modules the setting of the outermost counts.
        No bit of a result changes. Source: Korthikanti et al., "Reducing activation recomputation
        in large transformer models" (2022).

        >>> import onefold as flow
        >>> block = flow.nn.TransformerEncoderLayer(64, 4)
        >>> view = block.to(flow.nn.graph.GraphModule)
        >>> view.activation_checkpointing = True
        >>> view.saved_activations = ["linear1.linear", "self_attn.*"]
        """
        return self._saved

    @saved_activations.setter
    def saved_activations(self, names: Sequence[str]) -> None:
        self._saved = strings("saved_activations", names)

    @property
    def activation_offloading(self) -> bool:
        """Whether what the module's forward keeps for backward waits in host memory.

        It is copied there after its last use in forward, and back shortly before its first use in
        backward, in graphs without stages. Inputs of the module and parameters stay on the device.
        No bit of a result changes. Source: `torch.autograd.graph.save_on_cpu`.
        """
        return self._offloading

    @activation_offloading.setter
    def activation_offloading(self, mode: bool) -> None:
        self._offloading = switch("activation_offloading", mode)

    @property
    def settings(self) -> tuple[object, ...]:
        """What a compiled graph depends on."""
        memory = self._checkpointing, self._saved, self._offloading
        return self.stage_id, self._placement, *memory

    def to(self, view: object) -> Any:
        """`to(nn.Module)` returns the module."""
        return self if view is GraphModule else self.module
