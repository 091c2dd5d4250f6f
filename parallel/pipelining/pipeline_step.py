"""One step of a pipeline on this rank: forwards, backwards, and the messages between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

from ...distributed.point_to_point import Posted
from ...engine.autocast import get_autocast_dtype, is_autocast_enabled
from ...engine.autograd import backward_all
from ...engine.ops.like import full_like, zeros_like
from ...engine.tensor import Tensor
from ...errors import OnefoldRuntimeError, OnefoldTypeError, OnefoldValueError
from ...graph.pytree import tree_map, tree_values
from ...graph.schedules.actions import Action, Schedule
from ...graph.schedules.message_order import Posting, postings_after
from ...graph.schedules.simulate import Times, simulate
from .pipeline_stage import PipelineStage
from .stage_messages import (
    Announcement,
    Form,
    announce,
    arrive,
    check_outputs,
    expect,
    forms_of,
    hear,
    listed,
    send,
)

Forms = dict[tuple[int, int], tuple[Form, ...]]  # of what a stage returns for a micro-batch

_REMEMBERED = 4096  # kinds of steps
_PLAIN = (bool, int, float, str)  # arguments on which shapes may depend


@dataclass(frozen=True, slots=True)
class Transfer:
    """One end of a message: what `source` made for the stage `target`."""

    is_send: bool
    source: Action
    target: int


Instruction = Action | Transfer


def whole_backwards(schedule: Schedule) -> Schedule:
    """The schedule in which weights' gradients are made together with inputs' gradients."""
    ranks = tuple(
        tuple(replace(a, kind="B") if a.kind == "I" else a for a in actions if a.kind != "W")
        for actions in schedule.ranks
    )
    return replace(schedule, ranks=ranks)


def instructions(schedule: Schedule, rank: int) -> tuple[Instruction, ...]:
    """What a rank does in a step, with messages in the order in which they are ready."""
    timeline = simulate(schedule, Times())
    rank_of = schedule.rank_of
    sent: list[tuple[float, Action, int]] = []
    for action, (_, end) in timeline.spans.items():
        target = action.stage + (1 if action.kind == "F" else -1)
        if 0 <= target < schedule.stages and rank_of[target] != rank_of[action.stage]:
            sent.append((end, action, target))
    actions = schedule.ranks[rank]
    at = {action: index for index, action in enumerate(actions)}
    postings: list[Posting[Transfer]] = []
    for _, action, target in sorted(sent):
        for is_send, stage in ((True, action.stage), (False, target)):
            if rank_of[stage] == rank:
                place = at[replace(action, stage=stage)]
                postings.append(Posting(Transfer(is_send, action, target), is_send, place))
    found: list[Instruction] = []
    for done, transfers in enumerate(postings_after(postings, len(actions)), -1):
        found += [] if done < 0 else [actions[done]]
        found += transfers
    return tuple(found)


class Memory:
    """What this rank knows of the kinds of steps that a schedule had."""

    def __init__(self) -> None:
        self.numbers: dict[object, int] = {}  # of kinds, where the first stage is
        self.forms: dict[int, Forms] = {}

    def number(self, kind: object) -> tuple[int, bool]:
        """The number of a kind, and whether a step of it ended; below 0 there are too many."""
        if kind not in self.numbers and len(self.numbers) == _REMEMBERED:
            return -1, False
        number = self.numbers.setdefault(kind, len(self.numbers))
        return number, number in self.forms


@dataclass(frozen=True)
class StepInputs:
    """What `step` was given, by micro-batch."""

    args: Sequence[tuple[Any, ...]]
    kwargs: Sequence[Mapping[str, Any]]
    targets: Sequence[Any] | None
    loss_fn: Callable[..., Tensor] | None
    loss_kwargs: Mapping[str, Any]
    loss_scale: float
    keeps_outputs: bool


class PipelineStep:
    """A step while it runs; `outputs` and `losses` are those of the last stage, if it is here."""

    def __init__(
        self,
        schedule: Schedule,
        title: str,
        stages: Mapping[int, PipelineStage],
        inputs: StepInputs,
        memory: Memory,
        has_backward: bool,
    ) -> None:
        self.schedule = schedule
        self.stages = stages
        self.inputs = inputs
        self.has_backward = has_backward
        self.outputs: list[Any] = []
        self.losses: list[Tensor] = []
        self.ranks = next(iter(stages.values())).ranks
        self._memory = memory
        self._own = Announcement(title, schedule.micro_batches, has_backward, -1, False, ())
        self._started = 0 in stages
        self._forms: Forms = {}
        if self._started:
            device = stages[0].device.type
            low = get_autocast_dtype(device) if is_autocast_enabled(device) else None
            kind = (has_backward, low, described(inputs.args), described(inputs.kwargs))
            number, known = memory.number(kind)
            self._begin(number, known)
        self._kept: dict[tuple[int, int], tuple[Sequence[Tensor], Sequence[Tensor]]] = {}
        self._made: dict[tuple[Action, int], Sequence[Tensor]] = {}  # by source and target stage
        self._coming: dict[tuple[Action, int], Posted] = {}
        self._sent: list[Posted] = []

    def _begin(self, number: int, known: bool) -> None:
        """The kind of the step is known, on the first rank or from another's announcement."""
        self._own = replace(self._own, kind=number, known=known)
        if known and number not in self._memory.forms:
            raise OnefoldRuntimeError(
                f"{self._own.schedule}: this rank has made another schedule since the first one "
                "had such a step: make the schedule on all ranks at the same time"
            )
        self._forms = self._memory.forms[number] if known else {}

    def run(self, todo: Sequence[Instruction]) -> None:
        """Run the instructions of this rank."""
        for each in todo:
            if isinstance(each, Action):
                if each.kind == "F":
                    self._forward(each)
                else:
                    self._backward(each)
            elif each.is_send:
                self._send(each)
            else:
                self._expect(each)
        for posted in self._sent:
            posted.wait()
        assert not (self._kept or self._made or self._coming)
        if not self._own.known and self._own.kind >= 0:
            self._memory.forms[self._own.kind] = self._forms

    # Actions.

    def _forward(self, action: Action) -> None:
        stage, micro = self.stages[action.stage], action.micro_batch
        if stage.is_first:
            args, origin = self.inputs.args[micro], "step()"
        else:
            args, origin = self._given(action), f"stage {action.stage - 1}"
        stage.check("input_args", args)
        try:
            with stage.gradients_summed(False):
                output = stage.submod(*args, **self.inputs.kwargs[micro])
        except Exception as error:
            error.add_note(
                f"in stage {action.stage} of {stage.num_stages}, micro-batch {micro}, which was "
                f"given {listed(forms_of(args, False))} by {origin}; a stage must take what the "
                "one before it returns"
            )
            raise
        outputs: Sequence[Any] = (output,)
        if isinstance(output, (tuple, list)):
            outputs = tuple(output)
        stage.check("output_args", outputs)
        if stage.is_last:
            outputs = self._finish(output, micro)
        else:
            check_outputs(action.stage, outputs)
            self._note(action, outputs)
            self._made[action, action.stage + 1] = outputs
        if self.has_backward:
            received = () if stage.is_first else args
            self._kept[action.stage, micro] = outputs, received

    def _given(self, action: Action) -> tuple[Tensor, ...]:
        """What the stage before returned, as leaves of this stage's graph."""
        micro = action.micro_batch
        source = replace(action, stage=action.stage - 1)
        forms = self._forms[source.stage, micro]
        tensors = [x.detach() for x in self._taken(source, action.stage)]
        for x, form in zip(tensors, forms, strict=True):
            x.requires_grad_(form.has_gradient)
        return tuple(tensors)

    def _finish(self, output: Any, micro: int) -> Sequence[Tensor]:
        """Keep the output of the last stage, and compute its loss, which is returned."""
        inputs = self.inputs
        if inputs.keeps_outputs:
            kept = tree_map(output, lambda x: x.detach()) if self.has_backward else output
            self.outputs.append(kept)
        if inputs.loss_fn is None or inputs.targets is None:
            return ()
        loss: Any = inputs.loss_fn(output, inputs.targets[micro], **inputs.loss_kwargs)
        self.losses.append(loss)
        if self.has_backward and not (isinstance(loss, Tensor) and loss.numel() == 1):
            found = listed(forms_of((loss,), False)) if isinstance(loss, Tensor) else type(loss)
            raise OnefoldTypeError(
                f"loss_fn must return a tensor of one element, but returned {found}"
            )
        return (loss,)

    def _backward(self, action: Action) -> None:
        stage, micro = self.stages[action.stage], action.micro_batch
        outputs, received = self._kept.pop((action.stage, micro))
        if stage.is_last:
            seeds: Sequence[Tensor] = [full_like(outputs[0].detach(), self.inputs.loss_scale)]
        else:
            outputs = self._with_gradient(outputs, (action.stage, micro))
            seeds = self._taken(replace(action, stage=action.stage + 1), action.stage)
            # Those that need none since requires_grad_(False) get one all the same.
            used = [x.requires_grad for x in outputs]
            outputs, seeds = [*compress(outputs, used)], [*compress(seeds, used)]
        if outputs:
            with stage.gradients_summed(micro == self.schedule.micro_batches - 1):
                backward_all(outputs, seeds)
        if not stage.is_first:
            gradients = []
            for x in received:
                if x.requires_grad:
                    gradients.append(zeros_like(x) if x.grad is None else x.grad)
                    x.grad = None
            self._made[action, action.stage - 1] = gradients

    def _with_gradient(self, tensors: Sequence[Tensor], key: tuple[int, int]) -> Sequence[Tensor]:
        pairs = zip(tensors, self._forms[key], strict=True)
        return [x for x, form in pairs if form.has_gradient]

    # Messages.

    def _note(self, action: Action, outputs: Sequence[Tensor]) -> None:
        """Remember the forms of what a stage returned, or compare them with the known ones."""
        key, forms = (action.stage, action.micro_batch), forms_of(outputs, self.has_backward)
        if not self._own.known:
            self._forms[key] = forms
            return
        known = self._forms[key]
        if [each.alone() for each in forms] != [each.alone() for each in known]:
            raise OnefoldValueError(
                f"stage {action.stage} returned {listed(forms)} for micro-batch "
                f"{action.micro_batch}, but {listed(known)} in an earlier step with "
                "inputs of the same shapes, and so the next stage expects that: shapes may depend "
                "on the shapes and numbers given to step() on the rank of the first stage only. "
                "Pad what depends on values"
            )
        if any(
            now.has_gradient > before.has_gradient for now, before in zip(forms, known, strict=True)
        ):
            raise OnefoldRuntimeError(
                f"stage {action.stage} returned tensors that need gradients and did not in an "
                "earlier step: after requires_grad_(True), make a new schedule on all ranks"
            )

    def _taken(self, source: Action, target: int) -> Sequence[Tensor]:
        """What `source` made for a stage, here or on another rank."""
        if (source, target) in self._coming:
            return arrive(self._coming.pop((source, target)))
        return self._made.pop((source, target))

    def _rank(self, stage: int) -> int:
        return self.ranks[self.schedule.rank_of[stage]]

    def _is_announced(self, each: Transfer) -> bool:
        """Whether an announcement comes first: of all in a new step, else of a rank's first."""
        if each.source.kind != "F":
            return False
        rank_of = self.schedule.rank_of
        begins = each.source.micro_batch == 0 and rank_of.index(rank_of[each.target]) == each.target
        return begins or not self._own.known

    def _send(self, each: Transfer) -> None:
        self._sent = [posted for posted in self._sent if not posted.done()]
        tensors, to = self._made.pop((each.source, each.target)), self._rank(each.target)
        if self._is_announced(each):
            forms = self._forms[each.source.stage, each.source.micro_batch]
            self._sent.append(announce(to, replace(self._own, forms=forms)))
        if tensors:
            self._sent.append(send(to, tensors))

    def _expect(self, each: Transfer) -> None:
        source, stage = self._rank(each.source.stage), each.source.stage
        micro = each.source.micro_batch
        if each.source.kind == "F":
            if self._is_announced(each):
                heard = hear(source)
                heard.check(self._own, source)
                if not self._started:
                    self._started = True
                    self._begin(heard.kind, heard.known)
                self._forms[stage, micro] = heard.forms
            forms: Sequence[Form] = self._forms[stage, micro]
        else:
            forms = [form for form in self._forms[each.target, micro] if form.has_gradient]
        device = self.stages[each.target].device
        self._coming[each.source, each.target] = expect(source, forms, device)


def described(trees: Sequence[Any]) -> object:
    """What the shapes in a step may depend on, of its arguments: tensors' forms, and numbers."""
    found: list[object] = []

    def look(x: Tensor) -> Tensor:
        found.append((tuple(x.shape), x.dtype, x.requires_grad))
        return x

    for tree in trees:
        tree_map(tree, look)
        tree_values(tree, lambda leaf: found.append(leaf if isinstance(leaf, _PLAIN) else None))
    return tuple(found)
