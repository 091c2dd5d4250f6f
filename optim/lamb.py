"""LAMB: Adam's direction, scaled by the norm of the parameter."""

from __future__ import annotations

import torch

from ..engine.tensor import Tensor
from ..kernels import update_rules
from ..kernels.select import pick
from ..kernels.update_rule_ref import update_by_rule
from .adamw import counted, moments
from .device_scalar import LocalStep
from .optimizer import Group, Optimizer, Params, Part, unique_shards, zeros_for
from .option_checks import check_options
from .rule_optimizer import Lists, begin
from .tensor_norms import tensor_norms


class LAMB(Optimizer):
    """You et al., "Large batch optimization for deep learning: training BERT in 76 minutes" (2020).

    A parameter moves by lr * |w| / |u| * u, where u is AdamW's direction, its weight decay in it;
    by lr * u where a norm is 0. The norms are those of the logical tensors, over all their shards.

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(4) * 2)
    >>> w.sum().backward()
    >>> flow.optim.LAMB([w], lr=0.5).step()
    >>> w.numpy()
    array([1., 1., 1., 1.], dtype=float32)
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        do_bias_correction: bool = True,
        contiguous_params: bool = False,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        check_options("LAMB", options)
        super().__init__(params, {**options, "do_bias_correction": do_bias_correction})

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("step", "exp_avg", "exp_avg_sq")

    def _update(self, part: Part) -> None:
        group, params, given = part.group, part.params, part.given
        ways = [zeros_for(param) for param in params]
        for step, indices in counted(part).items():
            some = part.only(indices)
            begin(some.params, some.states, _MOMENTS)
            kept = [[state[key] for state in some.states] for key in _MOMENTS]
            for lists in unique_shards([ways[i] for i in indices], some.grads, *kept, some.params):
                self.direct(group, lists, given.local(lists[0][0], step))
        norms = [tensor_norms(params), tensor_norms(ways)]
        for targets, found, weights, lengths in unique_shards(params, ways, *norms):
            at = given.local(targets[0])
            rates = _trust(torch.stack(weights), torch.stack(lengths)) * at.lr
            update = pick(update_by_rule, targets[0].device.type)
            update(update_rules.move, targets, found, {}, {"lr": rates}, found_inf=at.found_inf)

    def direct(self, group: Group, lists: Lists, at: LocalStep) -> None:
        """Find directions: lists of them, then of gradients, both moments and parameters."""
        found, grads, averages, squares, params = lists
        numbers = moments(group, at._replace(lr=1.0)) | {"decay": group["weight_decay"]}
        kept = {"exp_avg": averages, "exp_avg_sq": squares, "p": params}
        update = pick(update_by_rule, params[0].device.type)
        rule = update_rules.lamb_direction
        update(rule, found, grads, kept, numbers, scale=at.scale, found_inf=at.found_inf)


_MOMENTS = ("exp_avg", "exp_avg_sq")


def _trust(weights: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Each tensor's trust ratio, from its norm and that of its direction."""
    return torch.where((weights > 0) & (lengths > 0), weights / lengths, 1.0)
