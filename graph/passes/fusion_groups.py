"""Fusion groups: the steps that can be one kernel, and why others cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from ...engine.meta import Meta
from ...engine.ops.cast import Cast
from ...engine.ops.extremum import Extremum
from ...engine.ops.matmul import MatrixOp, RowsProduct, RowsSum
from ...engine.ops.norm import NormGradOp, NormOp
from ...engine.ops.pointwise import Elementwise
from ...engine.ops.reduce import Sum, SumTo
from ...kernels.epilogue_ref import MAX_EXTRA, PRODUCTS
from ...kernels.norm_chain_ref import MAX_BEFORE, NORMS
from ..ir import ProgramStep, Value
from .pass_utils import same_segment

REDUCTIONS = (Extremum, RowsSum, Sum, SumTo)
MAX_STEPS = 32
MAX_TENSORS = 12  # inputs and outputs of one kernel: each needs registers for its addresses


@dataclass(eq=False, slots=True)
class Group:
    """Steps, by index, that run in place of the last of them.

    It is open until a step outside reads one of its values: that step must not wait.
    """

    members: list[int]
    reader: ProgramStep | None = None  # the one that closed it
    reduction: int | None = None  # the reduction of its last value
    product: int | None = None  # the matrix product that its first steps take

    @property
    def indices(self) -> list[int]:
        more = [index for index in (self.product, self.reduction) if index is not None]
        return [*more, *self.members]

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(slots=True)
class Groups:
    """The groups of a program's steps; `why` has the reasons of pointwise steps in no group.

    `refuses(step)` is the reason why a pointwise step cannot be fused, or "". `waiting` has the
    products without the cast that was their end, by its index: there they run, as with it.
    """

    steps: Sequence[ProgramStep]
    uses: Counter[int]
    refuses: Callable[[ProgramStep], str]
    of: dict[int, Group] = field(default_factory=dict)  # by the index of a member
    why: dict[int, str] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)
    _maker: dict[int, int] = field(default_factory=dict)  # by number: the index in a group

    def __post_init__(self) -> None:
        for index, step in enumerate(self.steps):
            if not self._reduces(index, step):
                self._add(index, step)

    def found(self) -> list[Group]:
        """Those that are worth a kernel of their own, in the order of their last steps."""
        found = []
        norms = self._norms()
        for group in dict.fromkeys(self.of.values()):
            if group.product is not None and self._goes_to_norm(group, norms):
                group.product = None
                for member in group.members:
                    self.why.setdefault(member, "it is left to the norm that reads it")
            if group.product is not None and not self._ends(group):
                group.product = None
                for member in group.members:
                    self.why.setdefault(member, "a product's end has one result of few tensors")
            if group.members and len(group) > 1:
                found.append(group)
        return found

    def _ends(self, group: Group) -> bool:
        """Whether the steps can be the end of the product's kernel."""
        assert group.product is not None
        product = self.steps[group.product].outputs[0]
        outputs = [value for value in self.outputs(group) if value is not product]
        return len(outputs) == 1 and len(self.inputs(group)) <= MAX_EXTRA

    def _norms(self) -> dict[int, ProgramStep]:
        """The norms that are the first to read what they normalize, by that value's number."""
        first: dict[int, ProgramStep] = {}
        for step in self.steps:
            for value in step.reads():
                first.setdefault(value.number, step)
        return {
            number: step
            for number, step in first.items()
            if isinstance(step.op, NormOp) and is_norm(step) and _first(step).number == number
        }

    def _goes_to_norm(self, group: Group, norms: dict[int, ProgramStep]) -> bool:
        """Whether the steps should be fused with the norm that reads their result.

        The product is then written and read, and the result is only written. Where the product is
        at most half as wide, this moves no more bytes; and a norm's kernel moves memory while it
        computes, the epilogue of a product only after it.
        """
        assert group.product is not None
        product, outputs = self.steps[group.product].outputs[0], self.outputs(group)
        norm = norms.get(outputs[0].number) if len(outputs) == 1 else None
        if norm is None or not same_segment(self.steps[group.members[-1]], norm):
            return False
        result, others = outputs[0].meta, self.inputs(group)
        alike = all(
            value.meta.is_floating and lies_alike(value.meta, result)
            for value in (product, *others)
        )
        few = 1 <= len(others) < MAX_BEFORE
        return alike and few and 2 * product.meta.dtype.itemsize <= result.dtype.itemsize

    def outputs(self, group: Group) -> list[Value]:
        """The values that steps outside the group or the end of the program need."""
        inside = Counter(v.number for index in group.indices for v in self.steps[index].reads())
        head = [] if group.product is None else [group.product]
        made = [self.steps[index].outputs[0] for index in (*head, *group.members)]
        return [value for value in made if self.uses[value.number] > inside[value.number]]

    def inputs(self, group: Group) -> list[Value]:
        """The values that it reads and does not make."""
        made = {self.steps[index].outputs[0].number for index in group.indices}
        read = {value.number: value for m in group.members for value in self.steps[m].reads()}
        return [value for number, value in read.items() if number not in made]

    def _add(self, index: int, step: ProgramStep) -> None:
        pointwise = is_pointwise(step)
        why = self.refuses(step) if pointwise else "no pointwise step"
        makers = dict.fromkeys(self._makers(step))
        for maker in makers:
            if isinstance(step.op, NormOp | NormGradOp) and self._is_widened(maker):
                product = self.of[maker].product
                assert product is not None
                if self.uses[self.steps[product].outputs[0].number] == 1:
                    self.waiting[maker] = product
                    self._cast_apart(maker)
        combined: list[Group] = []
        for maker in makers if not why else ():
            group = self.of[maker]
            against = self._against(group, self.steps[maker], step)
            ends = any(each.product is not None for each in combined) and group not in combined
            if not against and ends and self._is_widened(maker):
                group = self._cast_apart(maker)
            together = [*combined, group] if group not in combined else combined
            against = against or self._too_large(together, index)
            if against:
                self.why.setdefault(index, against)
            else:
                combined = together
        for maker in makers:
            if self.of[maker] not in combined and self.of[maker].reader is None:
                self.of[maker].reader = step
        if is_product(step):
            self.of[index] = Group([], product=index)
            self._maker[step.outputs[0].number] = index
        elif pointwise and why:
            self.why[index] = why
        elif pointwise:
            joined = _joint(combined, index)
            self.of.update(dict.fromkeys(joined.indices, joined))
            self._maker[step.outputs[0].number] = index

    def _is_widened(self, maker: int) -> bool:
        """Whether the step is a widening cast of a product, read once and the product's only end.

        The value is narrower before the cast, which is better done where it is read.
        """
        step, group = self.steps[maker], self.of[maker]
        alone = group.members == [maker] and self.uses[step.outputs[0].number] == 1
        cast = isinstance(step.op, Cast) and _widens(step)
        return group.product is not None and group.reader is None and alone and cast

    def _cast_apart(self, maker: int) -> Group:
        """The cast that is the end of a product as a group of its own."""
        product = self.of[maker]
        product.members.remove(maker)
        product.reader = self.steps[maker]
        self.of[maker] = Group([maker])
        return self.of[maker]

    def _makers(self, step: ProgramStep) -> list[int]:
        read = [value.number for value in step.reads()]
        return [self._maker[number] for number in read if number in self._maker]

    def _against(self, group: Group, maker: ProgramStep, step: ProgramStep) -> str:
        """Why a step cannot be in the group of one that it reads; "" if it can."""
        if group.reduction is not None or group.reader is not None:
            reader = group.reader or self.steps[group.reduction or 0]
            return f"{reader.name} reads {maker.outputs[0]!r} before"
        if not same_segment(maker, step):
            return f"{maker.outputs[0]!r} is made in another stage or pass"
        if not lies_alike(maker.outputs[0].meta, step.outputs[0].meta):
            return f"{maker.outputs[0]!r} has another shape or layout"
        return ""

    def _too_large(self, combined: Sequence[Group], index: int) -> str:
        group = _joint(combined, index)
        tensors = len(self.inputs(group)) + len(self.outputs(group))
        if len(group) > MAX_STEPS or tensors > MAX_TENSORS:
            return "the kernel would be too large"
        if sum(each.product is not None for each in combined) > 1:
            return "another product has it for its end"
        return ""

    def _reduces(self, index: int, step: ProgramStep) -> bool:
        """Whether a reduction is fused with the steps that make its input.

        It moves up to them. Steps whose values are wanted elsewhere too stay a group without it;
        but the value that is reduced may be wanted, it is written on the way.
        """
        makers = self._makers(step)
        if not isinstance(step.op, REDUCTIONS) or not makers or torch.bool in step.attrs:
            return False
        last = makers[0]
        group, maker = self.of[last], self.steps[last]
        alone = not group.members or last != group.members[-1]
        if group.reduction is not None or alone or not same_segment(maker, step):
            return False
        taken = self._only_for(last, group)
        rest = Group([m for m in group.members if m not in taken], step, None, group.product)
        kept = self.uses[maker.outputs[0].number] > 1
        if kept and rest.members:
            return False  # made with the rest, it is not made of what the rest has written
        wanted = {value.number for value in self.outputs(group)} - {maker.outputs[0].number}
        if {value.number for value in self.outputs(rest)} != wanted:
            return False  # more would be written than now
        reduced = Group(sorted(taken), group.reader, index)
        self.of.update(dict.fromkeys(rest.indices, rest) | dict.fromkeys(taken, reduced))
        if len(rest.members) == 1:
            self.why[rest.members[0]] = f"it is wanted besides {step.name}, which has what follows"
        self.of[index] = reduced
        return True

    def _only_for(self, last: int, group: Group) -> set[int]:
        """The member and those whose values are used for it alone."""
        taken = {last}
        for member in reversed(group.members[:-1]):
            number = self.steps[member].outputs[0].number
            used = sum(v.number == number for m in taken for v in self.steps[m].reads())
            if used and used == self.uses[number]:
                taken.add(member)
        return taken


def _joint(combined: Sequence[Group], index: int) -> Group:
    """The group of these and one more step."""
    members = sorted([*(m for each in combined for m in each.members), index])
    products = [each.product for each in combined if each.product is not None]
    return Group(members, product=products[0] if products else None)


def is_pointwise(step: ProgramStep) -> bool:
    """Whether each element of the output depends on the inputs' elements at its place only."""
    return isinstance(step.op, (Elementwise, Cast)) and step.place is None


def is_product(step: ProgramStep) -> bool:
    """Whether the step is a matrix product whose kernel can include later steps."""
    if not isinstance(step.op, MatrixOp) or step.op.reference not in PRODUCTS:
        return False
    a, b = [value.meta for value in step.reads()][:2]
    fits = a.ndim >= 2 and (b.ndim == 2 or isinstance(step.op, RowsProduct))
    return fits and a.is_floating


def is_norm(step: ProgramStep) -> bool:
    """Whether the step is a norm, or the gradient of one, whose kernel can include other steps."""
    if not isinstance(step.op, (NormOp, NormGradOp)) or step.name not in NORMS:
        return False
    return _first(step).meta.shape == step.outputs[0].meta.shape


def _first(norm: ProgramStep) -> Value:
    """The input that a norm normalizes; for its gradient, the gradient of the result."""
    first = norm.inputs[0]
    assert type(first) is Value
    return first


def _widens(step: ProgramStep) -> bool:
    return step.outputs[0].meta.dtype.itemsize > step.source.meta.dtype.itemsize


def lies_alike(a: Meta, b: Meta) -> bool:
    """Whether the shards of two values have the same shape on every rank."""
    if a.shape != b.shape or a.placement is not b.placement or a.device != b.device:
        return False
    return all(
        x is y or not (x.is_split or y.is_split) for x, y in zip(a.nd_sbp, b.nd_sbp, strict=True)
    )
