"""Rprop: steps by the signs of gradients, with a size of their own for each element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from ..kernels import adaptive_rules
from ..kernels.update_rule_ref import Numbers
from .device_scalar import LocalStep
from .full_state import full_for
from .optimizer import Group, Params, Part, zeros_for
from .rule_optimizer import RuleOptimizer, Stepped
from .torch_options import accept


class Rprop(RuleOptimizer):
    """Riedmiller and Braun, "A direct adaptive method for faster backpropagation learning" (1993).

    The arguments and the arithmetic are torch's: the size of a step starts as `lr`, is multiplied
    by the second of `etas` while the gradient keeps its sign, and by the first where it turns. It
    stays within `step_sizes`. Raises OnefoldValueError unless the etas surround 1.

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2))
    >>> w.sum().backward()
    >>> flow.optim.Rprop([w], lr=0.5).step()
    >>> w.numpy()
    array([0.5, 0.5], dtype=float32)
    """

    rule = staticmethod(adaptive_rules.rprop)
    counts_steps = True
    coupled = False

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        accept("Rprop", foreach=foreach, differentiable=differentiable)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise OnefoldValueError(
                f"Rprop: etas must be a number in (0, 1) and one above 1, but got {etas}"
            )
        super().__init__(
            params,
            {
                "lr": lr,
                "etas": etas,
                "step_sizes": step_sizes,
                "foreach": foreach,
                "maximize": maximize,
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("step", "prev", "step_size")

    def stepped(self, part: Part) -> Iterator[Stepped]:
        """As the base has it; sizes of steps start as the rate of a step that is not skipped."""
        started = [index for index, state in enumerate(part.states) if state]
        if len(started) < len(part.states) and part.given.is_skipped():
            part = part.only(started)
        if part.params:
            yield from super().stepped(part)

    def _begin(self, part: Part, keys: Sequence[str]) -> None:
        for param, state in zip(part.params, part.states, strict=True):
            if "prev" not in state:
                state["prev"] = zeros_for(param)
                state["step_size"] = full_for(param, float(part.given.lr))

    def numbers_at(self, group: Group, at: LocalStep) -> Numbers:
        (etaminus, etaplus), (smallest, largest) = group["etas"], group["step_sizes"]
        return {
            "etaminus": etaminus,
            "etaplus": etaplus,
            "smallest": smallest,
            "largest": largest,
        }
