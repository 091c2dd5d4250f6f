"""assert_same_training: a model trains the same on one device and under every strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TypeAlias

import torch

from ..engine.generator import manual_seed
from ..engine.tensor import Tensor
from ..engine.values import whole
from ..errors import OnefoldTypeError, OnefoldValueError
from ..graph.setting_checks import integer
from ..nn import Graph, Module
from ..optim import Optimizer
from .call_record import Call, CallRecorder, Key, recorded
from .rank_differences import Difference, different

Loss: TypeAlias = Callable[..., Tensor]
Training: TypeAlias = tuple[Module, Optimizer, Loss, Iterable[Sequence[Tensor]]]
Values: TypeAlias = dict[str, torch.Tensor | None]


def assert_same_training(
    make: Callable[..., Training],
    strategies: Mapping[str, Sequence[object]],
    steps: int = 5,
    *,
    tol: float = 1e-4,
    graph: bool = True,
    seed: int = 0,
) -> None:
    """Check that a model trains the same under each strategy as on one device.

    make: `make()` builds the training on one device, `make(*strategy)` that of a strategy. It
        returns the model, its optimizer, a function from a batch to the loss, and the batches:
        tuples of tensors, which are repeated where there are fewer than `steps`. It runs again for
        each strategy, from the same seed, so that weights, dropout masks and random data are equal.
    strategies: the arguments of `make` for each, by a name that messages use.
    steps: how many steps each trains.
    tol: how much losses, gradients, parameters and buffers may differ, relatively and absolutely.
        Models are best checked in float64, with less: in float32 a gradient that is zero but for
        rounding may move a parameter by a whole step of Adam, and ReLU may have another slope.
    graph: whether each strategy, and one device, also trains as an `nn.Graph`.

    Values are compared rank by rank with their part of the one on one device. In a launched world
    every process calls this.

    Raises AssertionError naming what differs first: the strategy, the step, the loss, gradient or
    parameter and the ranks that hold another value, and the first op or module whose result
    differs, with the line that called it; OnefoldValueError when `make` gives no batches and for
    less than 1 step; OnefoldTypeError for other steps, and for strategies that are no dict.

    Example:
        >>> B, S0 = flow.sbp.broadcast, flow.sbp.split(0)
        >>> def make(placement=None, data=None, weight=None):
        ...     model = flow.nn.Linear(4, 2, placement=placement, sbp=weight)
        ...     x = flow.randn(6, 4, placement=placement, sbp=data)
        ...     optimizer = flow.optim.SGD(model.parameters(), lr=0.1)
        ...     return model, optimizer, lambda x: (model(x) ** 2).mean(), [(x,)]
        >>> ranks = flow.placement("cpu", [0, 1])
        >>> strategies = {"data parallel": (ranks, S0, B), "tensor parallel": (ranks, B, S0)}
        >>> assert_same_training(make, strategies)
    """
    integer("assert_same_training: steps", steps, least=1)
    if not isinstance(strategies, Mapping):
        raise OnefoldTypeError(
            "assert_same_training: strategies must be a dict from names to the arguments of make, "
            f"such as {{'data parallel': (placement, sbp)}}, but got {strategies!r}"
        )
    wanted = [step.kept() for step in _eager_steps(make, (), steps, seed)]
    for name, arguments in strategies.items():
        for number, (step, one) in enumerate(
            zip(_eager_steps(make, arguments, steps, seed), wanted, strict=True)
        ):
            _compare(step, one, f"strategy {name!r}: in step {number}", tol)
    if graph:
        for name, arguments in {"one device": (), **strategies}.items():
            for number, (step, one) in enumerate(
                zip(_graph_steps(make, arguments, steps, seed), wanted, strict=True)
            ):
                _compare(step, one, f"strategy {name!r}, as a graph: in step {number}", tol)


@dataclass
class _TrainingStep:
    """What one step of a training gave; the gradients, and then the state after the update."""

    values: dict[str, Tensor | None]
    calls: list[Call]  # of ops and modules; none of a graph
    update: Callable[[], dict[str, Tensor | None]]  # ends the step, and gives the state

    def kept(self) -> _Expected:
        """The values themselves, after the step has ended."""
        values = {name: _value(x) for name, x in self.values.items()}
        calls = {call.key: [_kept(tensor) for tensor in call.results] for call in self.calls}
        values |= {name: _value(x) for name, x in self.update().items()}
        return _Expected(values, calls)


@dataclass
class _Expected:
    """The values of a step on one device."""

    values: Values
    calls: dict[Key, list[torch.Tensor]]


def _eager_steps(
    make: Callable[..., Training], arguments: Sequence[object], steps: int, seed: int
) -> Iterator[_TrainingStep]:
    model, optimizer, loss_of, batches = _made(make, arguments, steps, seed)
    paths: dict[object, str] = {module: path for path, module in model.named_modules()}
    for batch in batches:
        recorder = CallRecorder(paths)
        with recorded(recorder):
            loss = loss_of(*batch)
            loss.backward()

        def update() -> dict[str, Tensor | None]:
            optimizer.step()
            optimizer.zero_grad()
            return _state(model)

        # The last gradients are the first to be computed.
        gradients = reversed([(name, p.grad) for name, p in model.named_parameters()])
        values = {"the loss": loss, **{f"the gradient of {name}": g for name, g in gradients}}
        yield _TrainingStep(values, recorder.calls, update)


def _graph_steps(
    make: Callable[..., Training], arguments: Sequence[object], steps: int, seed: int
) -> Iterator[_TrainingStep]:
    model, optimizer, loss_of, batches = _made(make, arguments, steps, seed)
    graph = _TrainingGraph(model, optimizer, loss_of)
    for batch in batches:
        yield _TrainingStep({"the loss": graph(*batch)}, [], lambda: _state(model))


class _TrainingGraph(Graph):
    """One training step as a graph."""

    def __init__(self, model: Module, optimizer: Optimizer, loss_of: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss_of = loss_of
        self.add_optimizer(optimizer)

    def build(self, *batch: Tensor) -> Tensor:
        loss = self.loss_of(*batch)
        loss.backward()
        return loss


def _made(
    make: Callable[..., Training], arguments: Sequence[object], steps: int, seed: int
) -> tuple[Module, Optimizer, Loss, Iterator[Sequence[Tensor]]]:
    """What `make` gives, with as many batches as there are steps."""
    manual_seed(seed)
    model, optimizer, loss_of, batches = make(*arguments)
    found = list(islice(cycle(batches), steps))
    if len(found) < steps:
        raise OnefoldValueError(
            "assert_same_training: make() gave no batches; its last result must be an iterable of "
            "tuples of tensors"
        )
    manual_seed(seed + 1)  # however many numbers were drawn to make the model
    return model, optimizer, loss_of, iter(found)


def _state(model: Module) -> dict[str, Tensor | None]:
    """The parameters and buffers, by what messages call them."""
    return {
        **{f"the parameter {name}": x.detach() for name, x in model.named_parameters()},
        **{f"the buffer {name}": x for name, x in model.named_buffers()},
    }


def _compare(step: _TrainingStep, wanted: _Expected, where: str, tol: float) -> None:
    """Raise AssertionError naming the first value that differs, and what made it."""
    found = _first(step.values, wanted.values, tol)
    reason = ""
    if found is not None:
        reason = _first_call(step.calls, wanted.calls, tol)
    else:
        found = _first(step.update(), wanted.values, tol)
    if found is not None:
        name, difference = found
        raise AssertionError(f"{where} {name} {difference}{reason}")


def _first(
    found: Mapping[str, Tensor | None], wanted: Values, tol: float
) -> tuple[str, Difference] | None:
    for name in found:
        if name not in wanted:
            return name, Difference("does not exist on one device")
    pairs = [(x, wanted[name]) for name, x in found.items()]
    for name, difference in zip(found, different(pairs, tol), strict=True):
        if difference is not None:
            return name, difference
    return None


def _first_call(
    calls: Sequence[Call], wanted: Mapping[Key, Sequence[torch.Tensor]], tol: float
) -> str:
    """The first op or module whose result differs; "" when none that both called does."""
    known = [call for call in calls if call.key in wanted]
    pairs = [
        (x, value)
        for call in known
        for x, value in zip(call.results, wanted[call.key], strict=True)
    ]
    owners = [call for call in known for _ in call.results]
    for call, difference in zip(owners, different(pairs, tol), strict=True):
        if difference is not None:
            return f". What differs first is {call}: it {difference}"
    return ""


def _value(x: Tensor | None) -> torch.Tensor | None:
    return None if x is None else _kept(x)


def _kept(x: Tensor) -> torch.Tensor:
    """A copy of the value on one device, which later steps cannot change."""
    return whole(x).detach().clone()
