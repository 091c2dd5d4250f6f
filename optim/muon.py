"""Muon: momentum whose matrices are made orthogonal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch

from ..engine.commit import Change, Write
from ..engine.tensor import Tensor
from ..errors import OnefoldValueError
from ..kernels.guarded_update import gradient
from .device_scalar import on_device_of
from .optimizer import Group, Optimizer, Params, Part
from .option_checks import check_options
from .rule_optimizer import begin
from .whole_values import distinct, gathered, mapped, spread

ADJUSTMENTS = (None, "original", "match_rms_adamw")
MAX_STEPS = 100  # of the iteration; torch takes fewer


class Muon(Optimizer):
    """Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024).

    The arguments and the arithmetic are torch's, with the iteration in bfloat16. Parameters are
    matrices. The momentum of one that is split is gathered for the iteration, which every rank does
    alike. `adjust_lr_fn` is "original", Jordan's, or "match_rms_adamw", of Liu et al., "Muon is
    scalable for LLM training" (2025). Raises OnefoldValueError for parameters that are not matrices
    and for negative options.

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.eye(2))
    >>> w.sum().backward()
    >>> flow.optim.Muon([w], lr=0.5, weight_decay=0.0).step()
    >>> tuple(w.shape)
    (2, 2)
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        numbers = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "eps": eps}
        check_options("Muon", numbers)
        if adjust_lr_fn not in ADJUSTMENTS:
            raise OnefoldValueError(
                f"Muon: adjust_lr_fn must be one of {ADJUSTMENTS}, but got {adjust_lr_fn!r}"
            )
        if len(ns_coefficients) != 3:
            raise OnefoldValueError(
                f"Muon: ns_coefficients must be 3 numbers, but got {ns_coefficients}"
            )
        if not 0 <= ns_steps < MAX_STEPS:
            raise OnefoldValueError(
                f"Muon: ns_steps must be at least 0 and below {MAX_STEPS}, but got {ns_steps}"
            )
        more = {
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, {**numbers, **more})

    def add_param_group(self, group: Group) -> None:
        """Add a group of matrices with options of its own."""
        super().add_param_group(group)
        for param in self.param_groups[-1]["params"]:
            if param.ndim != 2:
                self.param_groups.pop()
                raise OnefoldValueError(
                    "Muon only supports 2D parameters whereas we found a parameter with size: "
                    f"{tuple(param.shape)}; give others to another optimizer, such as AdamW"
                )

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",)

    def _update(self, part: Part) -> Iterator[Write]:
        if part.given.is_skipped():
            return
        begin(part.params, part.states, ("momentum_buffer",))
        for param, grad, state in zip(part.params, part.grads, part.states, strict=True):
            yield partial(self._update_one, part, param, grad, state["momentum_buffer"])

    def _update_one(self, part: Part, param: Tensor, grad: Tensor, buffer: Tensor) -> list[Change]:
        group, scale, rate = part.group, part.given.scale, float(part.given.lr)
        share = group["momentum"]

        def unscaled(g: torch.Tensor) -> torch.Tensor:
            return g if scale is None else gradient(g, on_device_of(scale, g)).to(g.dtype)

        def averaged(kept: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
            return kept.lerp(unscaled(g), 1 - share)

        def ahead(average: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
            return unscaled(g).lerp(average, share) if group["nesterov"] else average

        average = mapped(averaged, buffer, grad)
        moved = gathered(mapped(ahead, average, grad))
        options = group["ns_coefficients"], group["ns_steps"], group["eps"]
        found = {d: orthogonal(x, *options).to(x.dtype) for d, x in moved.items()}
        adjusted = rate * _ratio(group["adjust_lr_fn"], *param.shape)
        changes: list[Change] = [partial(x.copy_, new) for x, new in distinct(buffer, average)]
        for p, way in distinct(param, spread(found, param)):
            changes.append(partial(p.mul_, 1 - rate * group["weight_decay"]))
            changes.append(partial(p.add_, way, alpha=-adjusted))
        return changes


def orthogonal(
    matrix: torch.Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> torch.Tensor:
    """A matrix near U V^T of a matrix U S V^T, in bfloat16, by Newton and Schulz's iteration."""
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.bfloat16()
    x = x.T if tall else x
    x = x / x.norm().clamp(min=eps)  # so that no singular value is above 1
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def _ratio(name: str | None, rows: int, columns: int) -> float:
    if name == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1, rows / columns))
