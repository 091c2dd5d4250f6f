"""LAMB: Adam's direction, scaled by the norm of the parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial

import torch

from ..engine.commit import Change, Write, together
from ..engine.tensor import Tensor
from ..kernels import update_rules
from .adamw import moments
from .device_scalar import Given, LocalStep
from .optimizer import Group, Optimizer, Params, Part, zeros_for
from .option_checks import check_options
from .rule_optimizer import Lists, begin, updates_by_rule
from .shard_lists import unique_shards
from .step_count import count, next_steps
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

    writes_copies = True

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

    def _update(self, part: Part) -> Iterator[Write]:
        for some in part.by_copies():
            yield from self._update_alike(some)

    def _update_alike(self, part: Part) -> Iterator[Write]:
        """The update of parameters that all have copies, or none of them."""
        group, params, given = part.group, part.params, part.given
        copies = [[copy for copy in part.copies if copy is not None]] if part.copies else []
        ways = [zeros_for(param) for param in params]
        for step, indices in next_steps(part).items():
            some = part.only(indices)
            begin(some.params, some.states, _MOMENTS)
            kept = [[state[key] for state in some.states] for key in _MOMENTS]
            for lists in unique_shards([ways[i] for i in indices], some.grads, *kept, some.params):
                yield from self.direct(group, lists, given.local(lists[0][0], step))
            yield partial(count, some.states, step)
        weights = tensor_norms(params)
        lengths = cache(partial(tensor_norms, ways))  # when the ways are there
        for number, lists in enumerate(unique_shards(params, ways, weights, *copies)):
            yield partial(_move, number, lists, lengths, params, given)

    def direct(self, group: Group, lists: Lists, at: LocalStep) -> Iterable[Write]:
        """Find directions: lists of them, then of gradients, both moments and parameters."""
        numbers = moments(group, at._replace(lr=1.0)) | {"decay": group["weight_decay"]}
        return updates_by_rule(
            update_rules.lamb_direction,
            lists,
            ("exp_avg", "exp_avg_sq", "p"),
            numbers,
            scale=at.scale,
            found_inf=at.found_inf,
        )


_MOMENTS = ("exp_avg", "exp_avg_sq")


def _move(
    number: int,
    lists: Lists,
    lengths: Callable[[], list[Tensor]],
    params: Sequence[Tensor],
    given: Given,
) -> Iterable[Change]:
    """The steps along the directions that were found, the `number`-th of their lists."""
    targets, ways, weights, *copies = lists
    _, steps = unique_shards(params, lengths())[number]
    at = given.local(targets[0])
    rates = _trust(torch.stack(weights), torch.stack(steps)) * at.lr
    numbers = {"lr": rates}
    writes = updates_by_rule(
        update_rules.move, [targets, ways], (), numbers, found_inf=at.found_inf,
        copies=copies[0] if copies else None,
    )  # fmt: skip
    return together(writes)()


def _trust(weights: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Each tensor's trust ratio, from its norm and that of its direction."""
    return torch.where((weights > 0) & (lengths > 0), weights / lengths, 1.0)
