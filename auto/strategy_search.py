"""Search: the fastest strategy for a model on a cluster that need not exist, within its memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import torch
from tqdm import tqdm

from ..distributed.world import world
from ..engine.cluster import planning
from ..engine.tensor import Tensor
from ..errors import OnefoldError, OnefoldValueError
from ..graph.garbage import uncollected
from ..graph.hardware import Hardware, read
from ..graph.memory.memory_plan import MemoryPlan
from ..graph.memory_traffic import readable
from ..graph.setting_checks import integer, switch
from ..nn.module import Module
from ..optim.adamw import AdamW
from ..optim.optimizer import Optimizer
from ..parallel.layout_plan import Plan
from .candidates import Candidate
from .choices import Choices
from .estimates import Estimate
from .search_arguments import Batch, budget_of, names_of, task_of
from .search_result import Priced, Result
from .strategy import Strategy
from .training_task import Task

SCHEDULES = ("1f1b", "interleaved", "zb-h1", "zb-v")
_HEAVY = 3  # meshes whose memory is planned: those that are expected to need most
_SLACK = 1.02  # bytes over estimated bytes, before there are plans to compare
_FULL = 0.97  # of the budget: what is left is not worth another plan
_FASTER = 0.998  # of the estimated seconds: what gains less is not worth one either
_FIRST = 2  # simulations before estimates are trusted
_MODULES = 64  # that are simulated before that, in smaller models
_SEARCHED = 4  # candidates for which layouts inside a stage are searched
_REPAIRS = 3  # times that a plan which misses the budget is replaced by a leaner one
_NEAREST = 3  # plans that are compiled to say how much a model that does not fit needs
_MORE = 2**6  # times as many ranks, up to which a model that does not fit is tried


def search(
    build_model: Callable[[], Module],
    batch: Batch,
    *,
    loss: Callable[..., Tensor],
    size: int | None = None,
    hardware: str | Path | Hardware = "h100",
    memory: float | None = None,
    optimizer: Callable[..., Optimizer] = AdamW,
    amp: torch.dtype | None = None,
    plan: Plan | None = None,
    schedules: Sequence[str] = SCHEDULES,
    device: str = "cuda",
    simulations: int = 12,
    thorough: bool = False,
    time_limit: float = 60.0,
) -> Result:
    """Find the fastest strategy for a training step on `size` ranks of some hardware.

    `build_model()` makes the model as for one device, without placements. `batch` is one tensor or
    several, of which the shapes and dtypes count; their dim 0 is the batch of one step of all
    ranks. `loss(model, *batch)` is its mean loss, `optimizer(parameters)` the optimizer, `amp` the
    dtype of mixed precision. `memory` are the bytes of each rank, by default those of the hardware.

    Stages, the sizes of the data and tensor axes, micro-batches, schedules, ZeRO, the split of the
    sequence, and which activations are recomputed or offloaded are chosen together. A tensor axis
    splits layers as `plan` says (`onefold.parallel`). Without one it splits them as Megatron-LM
    does, or as the exact search over layouts of parameters and ops finds that it takes less time.

    Every candidate is estimated in closed form. The most promising are compiled as the cluster
    would, with memory, and simulated: at most `simulations`, for `time_limit` seconds, and while
    the estimates of others, as wrong as those so far, are below the best. With `thorough` all are
    simulated whose bounds are below it. Plain data parallelism, tensor parallelism and ZeRO-3 are
    always considered. Nothing is allocated, and the world stays as it is.

    Raises OnefoldTypeError and OnefoldValueError for invalid arguments, for a batch or a model that
    the ranks cannot divide, and, with the nearest plan, for a model that does not fit.

    >>> import onefold as flow
    >>> found = flow.auto.search(
    ...     lambda: flow.nn.Sequential(flow.nn.Linear(64, 256), flow.nn.Linear(256, 8)),
    ...     flow.empty(4096, 64),
    ...     loss=lambda model, x: (model(x) ** 2).mean(),
    ...     size=4,
    ... )
    >>> found.strategy.size, found.seconds >= found.lower_bound > 0
    (4, True)
    """
    wanted = _Search(
        task_of(build_model, batch, loss, optimizer, amp, device),
        integer("search: size", world().size if size is None else size, least=1),
        read(hardware),
        memory,
        plan,
        names_of(schedules),
        integer("search: simulations", simulations, least=1),
        switch("search: thorough", thorough),
        time_limit,
    )
    with uncollected():  # there is little garbage, and much that is alive
        return wanted.run()


class _Search:
    """One search."""

    def __init__(
        self,
        task: Task,
        size: int,
        hardware: Hardware,
        memory: float | None,
        plan: Plan | None,
        schedules: Sequence[str],
        simulations: int,
        thorough: bool,
        time_limit: float,
    ) -> None:
        self.start = time.perf_counter()
        self.task = task
        self.size = size
        self.hardware = hardware
        self.budget = budget_of(hardware, memory)
        self.simulations = simulations
        self.thorough = thorough
        self.time_limit = time_limit
        self.choices = Choices(task, hardware, self.budget, plan, schedules)
        self.priced: dict[Strategy, Priced] = {}
        self.unfit: dict[Strategy, int] = {}  # bytes of those that do not fit
        self.failed: dict[str, str] = {}
        self.done: set[Candidate] = set()
        self.estimates: dict[Strategy, Estimate] = {}  # of those that were compiled
        self.plans: dict[Strategy, MemoryPlan] = {}  # of their heaviest ranks
        self.heavier: dict[object, float] = {}  # bytes over estimated bytes, the most so far

    def run(self) -> Result:
        choices = self.choices
        found = choices.estimates(choices.space(self.size))
        found += choices.searched_estimates(found, None if self.thorough else _SEARCHED)
        fitting = sorted((e for e in found if e.memory <= self.budget), key=lambda e: e.seconds)
        doubtful = [e for e in found if e.memory > self.budget >= e.least]
        order = [*fitting, *sorted(doubtful, key=lambda e: e.memory)]
        self._simulate(order)
        best = self._packed()
        if best is None:
            self._price_nearest(found)
            best = self._packed()
        if best is None:
            self._fits_nowhere()
        rest = [e.bound for e in order if e.candidate not in self.done]
        others = [priced for priced in self.priced.values() if priced is not best]
        return Result(
            best=best,
            runners_up=tuple(sorted(others, key=lambda p: p.seconds)),
            hardware=self.hardware,
            budget=self.budget,
            lower_bound=min([best.seconds, *rest]),
            candidates=len(found),
            unfit=len(found) - len(order),
            beaten=sum(bound >= best.seconds for bound in rest),
            failed=tuple(self.failed.items()),
            took=time.perf_counter() - self.start,
            task=self.task,
            one_stage=choices.blocks == 1 < len(choices.units.names),
        )

    def _simulate(self, order: Sequence[Estimate]) -> None:
        """Price the candidates that may be the fastest that fits, in this order.

        What the estimates were wrong by so far says which of the others are worth it.
        """
        best: Priced | None = None
        tried, least = 0, 1.0  # of seconds over estimated seconds
        first = max(_FIRST, _MODULES // len(self.choices.units.names or ("",)))
        plain = [e for e in order if e.candidate.pure and e.memory <= self.budget]
        bar = tqdm(total=self.simulations, desc="simulating", leave=False, delay=1.0)
        for number, each in enumerate([*order, *plain]):
            if each.candidate in self.done:
                continue
            late = time.perf_counter() - self.start > self.time_limit
            if best is None and late and tried and not self.thorough:
                if each.memory > self.budget or tried > self.simulations:
                    break
                if tried == self.simulations:  # the last one: that which needs least memory
                    each = min(order, key=lambda e: (e.candidate in self.done, e.memory))
            if best is not None:
                enough = tried >= self.simulations or late
                unlikely = tried >= first and each.seconds * least >= best.seconds
                skipped = (enough or unlikely) and not self.thorough and number < len(order)
                if skipped or each.bound >= best.seconds:
                    continue
            found = self._repaired(each)
            tried += 1
            bar.update()
            if found is None:
                continue
            ratio = found.seconds / found.estimate
            least = ratio if tried == 1 else min(least, ratio)
            if best is None or found.seconds < best.seconds:
                best = found
                bar.set_postfix_str(f"{1e3 * best.seconds:,.4g} ms", refresh=False)
        bar.close()
        if best is not None:
            self._relax(best)

    def _relax(self, best: Priced) -> None:
        """Price the same with fewer modules recomputed, where memory is left."""
        late = time.perf_counter() - self.start > self.time_limit
        if best.strategy.recomputed and best.memory <= _FULL * self.budget and not late:
            before = self.estimates[best.strategy]
            budget = before.memory + (_FULL * self.budget - best.memory)
            again = self.choices.estimator.estimate(before.candidate, budget)
            if again.seconds < _FASTER * before.seconds:
                self._price(again)

    def _repaired(self, estimate: Estimate) -> Priced | None:
        """The candidate with so many modules offloaded or recomputed that it fits, or None."""
        c = estimate.candidate
        self.done.add(c)
        key = c.schedule, c.micro_batches > 1, c.zero
        for _ in range(_REPAIRS):
            heavier = self.heavier.get(key, _SLACK)
            if estimate.memory * heavier > self.budget:
                again = self.choices.estimator.estimate(estimate.candidate, self.budget / heavier)
                if again.memory * heavier <= self.budget:
                    estimate = again
            priced, memory = self._price(estimate)
            if priced is not None or memory is None:
                return priced
            self.heavier[key] = max(heavier, memory / estimate.memory)
            if self.heavier[key] == heavier or not _can_recompute(estimate):
                return None
        return None

    def _price(self, estimate: Estimate) -> tuple[Priced | None, int | None]:
        """The candidate, compiled and simulated, and its memory.

        None in place of what does not fit, and of the memory of what cannot be compiled.
        """
        strategy = self.choices.strategy(estimate)
        self.estimates[strategy] = estimate
        if strategy in self.priced:
            return self.priced[strategy], self.priced[strategy].memory
        if strategy in self.unfit:
            return None, self.unfit[strategy]
        task = self.task
        try:
            with planning(strategy.size):
                step = task.step(strategy, task.build_model(), task.rows)
                mesh = strategy.data * strategy.tensor
                ranks = [at * mesh for at in estimate.heavy[:_HEAVY]]
                plan = max((step.memory(rank) for rank in ranks), key=_needed)
                memory = self.hardware.context_bytes + _needed(plan)
                if memory > self.budget:
                    self.unfit[strategy] = memory
                    return None, memory
                simulation = step.simulate(self.hardware, tokens=task.tokens, memory=False)
        except OnefoldError as error:
            self.failed[strategy.summary] = str(error)
            return None, None
        reserved = max(group.reserved for group in simulation.groups)
        memory += reserved - self.hardware.context_bytes
        if memory > self.budget:
            self.unfit[strategy] = memory
            return None, memory
        priced = self.priced[strategy] = Priced(strategy, simulation, memory, estimate.seconds)
        self.plans[strategy] = plan
        return priced, memory

    def _packed(self) -> Priced | None:
        """The fastest of all for whose heaviest rank an arena was found within the budget."""
        while self.priced:
            best = min(self.priced.values(), key=lambda p: p.seconds)
            plan = self.plans[best.strategy]
            memory = best.memory + plan.total - _needed(plan)
            del self.priced[best.strategy]
            if memory <= self.budget:
                packed = self.priced[best.strategy] = replace(best, memory=memory)
                return packed
            self.unfit[best.strategy] = memory
        return None

    # Errors.

    def _price_nearest(self, found: Sequence[Estimate]) -> None:
        """Price those that are expected to need least memory, of several numbers of meshes."""
        nearest: dict[int, Estimate] = {}
        for each in sorted(found, key=lambda e: e.memory):
            nearest.setdefault(each.candidate.meshes, each)
        for each in [*nearest.values()][:_NEAREST]:
            self._price(each)

    def _fits_nowhere(self) -> NoReturn:
        """Raise for a model that fits nowhere, or that cannot be compiled."""
        if not self.unfit:
            strategy, reason = next(iter(self.failed.items()))
            raise OnefoldValueError(
                f"search: no strategy can be compiled; {strategy}, for example: {reason}"
            )
        plan, least = min(self.unfit.items(), key=lambda pair: pair[1])
        over = readable(least - self.budget)
        raise OnefoldValueError(
            f"search: the model fits on {self.size:,} ranks of {self.hardware.name} in no way that "
            f"was found. Each has {readable(self.budget)}; the nearest plan needs "
            f"{readable(least)}, {over} more: {plan.summary}. {self._enough()}"
        )

    def _enough(self) -> str:
        """How many ranks would do, by the estimates."""
        size = self.size
        while size < _MORE * self.size:
            size *= 2
            try:
                found = self.choices.estimates(self.choices.space(size))
            except OnefoldValueError:
                break
            fitting = [each for each in found if each.memory <= self.budget]
            if fitting:
                plan = self.choices.strategy(min(fitting, key=lambda each: each.seconds))
                return f"{size:,} ranks would do, for example with {plan.summary}"
        return "More ranks alone would not do: use a smaller batch or model, or amp="


def _needed(plan: MemoryPlan) -> int:
    """Bytes of a rank without gaps: an arena is laid out for the best strategy alone."""
    return plan.persistent + plan.inputs + plan.lower_bound


def _can_recompute(estimate: Estimate) -> bool:
    """Whether there are modules left that could be recomputed."""
    whole = sum(not saved for saved in estimate.saved)
    return whole + len(estimate.offloaded) < sum(map(len, estimate.parts))
