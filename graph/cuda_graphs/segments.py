"""Segments: which steps of a program are captured as CUDA graphs, and why the others are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ...engine.meta import Meta
from ...engine.ops.attention import Attention, AttentionGrad
from ...engine.ops.creation import Source
from ...engine.ops.dropout import DropoutKey, DropoutOp, DropoutWithMask
from ..ir import HOST, UPDATE, ProgramStep
from ..passes.fuse_dropout import FusedDropout
from .captured_boxing import CapturedBoxing, boxings, counted, leave_out

# Sources that make the same in every call.
_CONSTANT = set("arange eye full linspace logspace ones tensor zeros".split())
# Ops whose kernels can read the numbers of a draw from the device's memory.
_READ_DRAWS = {DropoutOp, DropoutWithMask, FusedDropout, Attention, AttentionGrad}
_OPTION = "config.enable_cuda_graph(communication=True) captures collectives of NCCL"


@dataclass(frozen=True)
class Where:
    """The device and communication of the process that runs a program."""

    device_type: str = "cuda"
    launched: bool = False  # whether boxing communicates with other processes
    draws_in_memory: bool = True  # whether kernels can read the numbers of random draws there
    between: str = _OPTION  # why communication is not captured; empty if it is

    @property
    def captures_communication(self) -> bool:
        return self.launched and not self.between


@dataclass(frozen=True)
class Segment:
    """Consecutive steps, by their indices, captured as one CUDA graph or run one by one."""

    steps: Sequence[int]
    reasons: Sequence[str] = field(default=())  # why they are not captured; empty if they are
    communication: Sequence[CapturedBoxing] = ()  # what is captured of it, in turn

    @property
    def captured(self) -> bool:
        return not self.reasons

    @property
    def collectives(self) -> list[str]:
        """The kinds of what is captured, in the order in which ranks communicate."""
        return [kind for each in self.communication for kind in each.kinds]


# Why a step is not captured, in the order in which reasons are looked for.
Rule = Callable[[ProgramStep, Where], bool]
RULES: tuple[tuple[Rule, str], ...] = (
    (
        lambda step, where: (
            where.launched
            and bool(where.between)
            and (step.start is not None or step.exchanges is not None)
        ),
        "communicates with other processes",
    ),
    (
        lambda step, where: (
            bool(draws_of(step))
            and not (where.draws_in_memory and {type(step.op), type(step.origin)} & _READ_DRAWS)
        ),
        "its kernel takes the numbers of random draws from the host",
    ),
    (
        lambda step, where: any(
            meta is not None and meta.device_type != where.device_type
            for meta in (*step.input_metas, *step.output_metas)
            if not _is_number(step, meta)
        ),
        "reads or makes a tensor on another type of device",
    ),
)


def reason(step: ProgramStep, where: Where) -> str:
    """Why a step is not captured; empty if it is."""
    found = step.host or next((text for rule, text in RULES if rule(step, where)), "")
    return f"{found}: {where.between}" if found == RULES[0][1] else found


def _is_number(step: ProgramStep, meta: Meta | None) -> bool:
    """Whether a value is a number of the update, whose device may differ between runs."""
    return step.scope == UPDATE and meta is not None and meta.shape == ()


def draws_of(step: ProgramStep) -> list[DropoutKey]:
    """The random draws of a step."""
    return [given for given in step.inputs if type(given) is DropoutKey]


def moves_draws(step: ProgramStep) -> bool:
    """Whether the step only lets random calls draw for another micro-batch."""
    return step.origin == "draws"


def is_source(step: ProgramStep) -> bool:
    """Whether the step has no inputs. Such steps run before the others in each call."""
    return type(step.origin) is Source


def is_host(step: ProgramStep) -> bool:
    """Whether the step only computes a number on the host. Such steps also run first."""
    return step.origin is HOST


def is_constant(step: ProgramStep) -> bool:
    """Whether a source makes the same tensor in each call."""
    return is_source(step) and step.name in _CONSTANT


def communication_of(steps: Sequence[ProgramStep], where: Where) -> list[CapturedBoxing]:
    """The boxings that would be captured if the steps between them are, equal on all ranks."""
    found = boxings(steps) if where.captures_communication else []
    return [each for each in found if each.is_collective]


def segments_of(steps: Sequence[ProgramStep], where: Where) -> list[Segment]:
    """The steps, without sources and steps of the host, in segments that are captured or not."""
    texts = dict(_reasons(steps, where))
    communication = boxings(steps) if where.captures_communication else []
    leave_out(texts, communication)
    found = []
    for _, group in groupby(texts.items(), lambda pair: bool(pair[1])):
        pairs = list(group)
        reasons = tuple(dict.fromkeys(text for _, text in pairs if text))
        numbers = tuple(index for index, _ in pairs)
        first, last = numbers[0], numbers[-1]
        inside = [each for each in communication if not reasons and first <= each.begin <= last]
        found.append(Segment(numbers, reasons, inside))
    return found


def _reasons(steps: Sequence[ProgramStep], where: Where) -> Iterator[tuple[int, str]]:
    """The indices of steps, and why they are not captured.

    What moves the draws on is work of the host, and belongs to the segment that is there.
    """
    last = ""
    for index, step in enumerate(steps):
        if not (is_source(step) or is_host(step)):
            last = last if moves_draws(step) else reason(step, where)
            yield index, last


def summary(steps: Sequence[ProgramStep], segments: Sequence[Segment]) -> str:
    """How the steps run, a line for each segment."""
    lines = []
    for segment in segments:
        names = [steps[index].name for index in segment.steps]
        if segment.captured:
            with_them = f", with {counted(segment.collectives)}" if segment.communication else ""
            lines.append(f"# CUDA graph: {len(names)} steps, {names[0]} to {names[-1]}{with_them}")
        else:
            shown = ", ".join(dict.fromkeys(names))
            lines.append(f"# between: {shown}: {'; '.join(segment.reasons)}")
    return "\n".join(lines)
