"""Rows of benchmarks/kernels.py for the optimizers' rules of updating."""

from __future__ import annotations

import torch
from kernel_row import Function, Inputs, Lists, Maker, Row, ours
from torch import Tensor

import onefold as flow
from onefold.engine.commit import finish
from onefold.kernels import update_rules
from onefold.kernels.update_rule_ref import update_by_rule
from onefold.optim.device_scalar import LocalStep
from onefold.optim.momentum import Momentum


def update_rows() -> list[Row]:
    """Rules of updating besides those of main_rows; torch does them by lists, step by step."""
    rate, keep, eps, decay = 1e-3, 0.9, 1e-8, 0.1
    betas = (keep, 0.999)
    options = {"lr": rate, "eps": eps}
    only = [flow.nn.Parameter(flow.ones(1))]
    adam = flow.optim.Adam(only, betas=betas, weight_decay=decay, **options)
    rmsprop = flow.optim.RMSprop(only, alpha=keep, **options)
    momentum = Momentum(only, momentum=keep)
    lamb = flow.optim.LAMB(
        only, betas=betas, weight_decay=decay, do_bias_correction=False, **options
    )

    def lists(make: Maker, count: int, size: int) -> Inputs:
        made = [[make(size) for _ in range(count)] for _ in range(4)]
        made[3] = [x.square() for x in made[3]]
        rates = torch.full((count,), rate, dtype=torch.float64, device=make.device)
        return *made, rates, torch.tensor(3.0, device=make.device)

    def first(update: Function) -> Function:
        """The update, and the first parameter after it."""

        def run(p: Lists, *kept: object) -> Tensor:
            update(p, *kept)
            return p[0]

        return run

    def ours_adam(p: Lists, g: Lists, m: Lists, v: Lists, rates: Tensor, step: Tensor) -> None:
        finish(adam.update_lists(adam.param_groups[0], (p, g, m, v), LocalStep(rate, step)))

    def torch_adam(p: Lists, g: Lists, m: Lists, v: Lists, rates: Tensor, step: Tensor) -> None:
        torch._fused_adam_(
            p, g, m, v, [], [step] * len(p), lr=rate, beta1=betas[0], beta2=betas[1],
            weight_decay=decay, eps=eps, amsgrad=False, maximize=False,
        )  # fmt: skip

    def ours_rmsprop(p: Lists, g: Lists, m: Lists, v: Lists, rates: Tensor, step: Tensor) -> None:
        finish(rmsprop.update_lists(rmsprop.param_groups[0], (p, g, v), LocalStep(rate)))

    def torch_rmsprop(p: Lists, g: Lists, m: Lists, v: Lists, rates: Tensor, step: Tensor) -> None:
        torch._foreach_mul_(v, keep)
        torch._foreach_addcmul_(v, g, g, 1 - keep)
        torch._foreach_addcdiv_(p, g, torch._foreach_add(torch._foreach_sqrt(v), eps), -rate)

    def ours_momentum(p: Lists, g: Lists, m: Lists, v: Lists, rates: Tensor, step: Tensor) -> None:
        finish(momentum.update_lists(momentum.param_groups[0], (p, g, m), LocalStep(rates)))

    def torch_momentum(p: Lists, g: Lists, m: Lists, v: Lists, rates: Tensor, step: Tensor) -> None:
        torch._foreach_mul_(m, keep)
        torch._foreach_add_(m, g, alpha=-rate)
        torch._foreach_add_(p, m)

    def ours_lamb(p: Lists, g: Lists, m: Lists, v: Lists, rates: Tensor, step: Tensor) -> None:
        found = [torch.empty_like(x) for x in p]
        finish(lamb.direct(lamb.param_groups[0], (found, g, m, v, p), LocalStep(1.0, 1)))
        ours(update_by_rule)(update_rules.move, p, found, {}, {"lr": rates})

    def torch_lamb(p: Lists, g: Lists, m: Lists, v: Lists, rates: Tensor, step: Tensor) -> None:
        torch._foreach_lerp_(m, g, 1 - betas[0])
        torch._foreach_mul_(v, betas[1])
        torch._foreach_addcmul_(v, g, g, 1 - betas[1])
        found = torch._foreach_div(m, torch._foreach_add(torch._foreach_sqrt(v), eps))
        torch._foreach_add_(found, p, alpha=decay)
        torch._foreach_add_(p, found, alpha=-rate)

    sizes, tiny = (256, 4 << 20), (3, 40)
    return [
        Row("update_rule", name, sizes, tiny, lists, first(ours), first(plain),
            lambda count, size, passes=passes: passes * count * size, dtype=torch.float32,
            compiled=False)
        for name, ours, plain, passes in (
            ("adam", ours_adam, torch_adam, 7),
            ("rmsprop", ours_rmsprop, torch_rmsprop, 5),
            ("momentum", ours_momentum, torch_momentum, 5),
            ("lamb without its norms", ours_lamb, torch_lamb, 10),
        )
    ]  # fmt: skip
