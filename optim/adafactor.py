"""Adafactor: keeps the mean squares of rows and columns instead of those of elements."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from ..engine.commit import Change, Write
from ..engine.convert import box
from ..engine.tensor import Tensor, from_shards
from ..errors import OnefoldValueError
from ..kernels.guarded_update import gradient
from .device_scalar import on_device_of
from .loaded_state import loaded_as
from .optimizer import Group, Optimizer, Params, Part, State
from .option_checks import check_options
from .tensor_norms import tensor_norms
from .torch_options import accept
from .whole_values import Local, distinct, gathered, spread, whole_meta


class Adafactor(Optimizer):
    """Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost" (2018).

    The arguments and the arithmetic are torch's. Gradients that are split are gathered, and every
    rank keeps the means of all rows and columns. Raises OnefoldValueError for options out of range.

    >>> import onefold as flow
    >>> w = flow.nn.Parameter(flow.ones(2, 2))
    >>> w.sum().backward()
    >>> flow.optim.Adafactor([w], lr=0.5).step()
    >>> w.numpy().round(4)
    array([[0.5, 0.5],
           [0.5, 0.5]], dtype=float32)
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        accept("Adafactor", foreach=foreach)
        check_options("Adafactor", {"lr": lr, "weight_decay": weight_decay})
        check_options("Adafactor", {"eps[0]": eps[0], "eps[1]": eps[1]})
        if d < 1:
            raise OnefoldValueError(f"Adafactor: d must be >= 1, but got {d}")
        options = {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d}
        more = {"weight_decay": weight_decay, "foreach": foreach, "maximize": maximize}
        super().__init__(params, {**options, **more})

    def _check_options(self, options: Group) -> None:
        super()._check_options(options)
        if options.get("beta2_decay", 0) > 0:
            raise OnefoldValueError(
                f"Adafactor: beta2_decay must be <= 0, but got {options['beta2_decay']}"
            )

    @staticmethod
    def _lay_state(params: object, states: object) -> None:
        """The state is whole on every rank, whatever the layout of the parameters."""

    def _loaded(self, key: str, value: object, param: Tensor) -> object:
        if key in self.numbers:
            return super()._loaded(key, value, param)
        shape = getattr(value, "shape", param.shape)
        return loaded_as(value, from_shards((), whole_meta(param.meta, shape)))

    def _update(self, part: Part) -> Iterator[Write]:
        if part.given.is_skipped():
            return
        norms = tensor_norms(part.params)
        rows = zip(part.params, part.grads, part.states, norms, strict=True)
        for param, grad, state, norm in rows:
            state.setdefault("step", 0)
            names = ("row_var", "col_var") if param.ndim > 1 else ("variance",)
            kept = {name: _whole(state, name, param) for name in names}
            yield partial(self._update_one, part, param, grad, state, kept, norm)

    def _update_one(
        self,
        part: Part,
        param: Tensor,
        grad: Tensor,
        state: State,
        kept: dict[str, Local],
        norm: Tensor,
    ) -> list[Change]:
        group, given, rate = part.group, part.given, float(part.given.lr)
        step = int(state["step"]) + 1
        eps1, eps2 = group["eps"]
        eps1 = torch.finfo(param.dtype).eps if eps1 is None else eps1
        size = float(norm.shards[0]) if norm.shards else 0.0
        alpha = max(eps2, size / max(1, param.numel()) ** 0.5)
        alpha *= min(rate, step**-0.5)
        grads: Local = {}
        for device, g in gathered(grad).items():
            g = g if given.scale is None else gradient(g, on_device_of(given.scale, g)).to(g.dtype)
            grads[device] = -g if group["maximize"] else g
        changes: list[Change] = [partial(state.__setitem__, "step", step)]
        ways = {}
        for device, g in grads.items():
            own = [values[device] for values in kept.values()]
            means = _means(g, own, float(step) ** group["beta2_decay"])
            changes += [partial(x.copy_, new) for x, new in zip(own, means, strict=True)]
            ways[device] = _direction(g, means, eps1)
            length = float(ways[device].norm(2)) / (max(1, g.numel()) ** 0.5 * group["d"])
            ways[device].mul_(-alpha / max(1.0, length))
        for p, way in distinct(param, spread(ways, param)):
            if group["weight_decay"]:
                changes.append(partial(p.mul_, 1 - rate * group["weight_decay"]))
            changes.append(partial(p.add_, way))
        return changes


def _whole(state: State, name: str, param: Tensor) -> Local:
    """A tensor of the state on each device, initially zeros, which is written in place."""
    shape = list(param.shape)
    if name != "variance":
        shape[-1 if name == "row_var" else -2] = 1
    meta = whole_meta(param.meta, shape)
    if name not in state:
        state[name] = spread_zeros(param, shape)
    elif state[name].meta is not meta:
        state[name] = from_shards(tuple([x.clone() for x in box(state[name], meta).shards]), meta)
    found: Local = {}
    for part in state[name].shards:
        found.setdefault(part.device, part)
    # Replicas on one device are one tensor, so that a write is seen by all of them.
    state[name] = from_shards(tuple([found[part.device] for part in state[name].shards]), meta)
    return found


def spread_zeros(param: Tensor, shape: list[int]) -> Tensor:
    """Zeros of another shape for the shards of a parameter, one tensor on each device."""
    zeros = {part.device: part.new_zeros(shape) for part in param.shards}
    meta = whole_meta(param.meta, shape)
    return from_shards(tuple([zeros[part.device] for part in param.shards]), meta)


def _means(g: torch.Tensor, kept: list[torch.Tensor], share: float) -> list[torch.Tensor]:
    """The new mean squares: of rows and columns, or of each element."""
    if len(kept) == 1:
        return [kept[0].lerp(g * g, share)]
    return [
        means.lerp(g.norm(dim=dim, keepdim=True).square_().div_(g.size(dim)), share)
        for means, dim in zip(kept, (-1, -2), strict=True)
    ]


def _direction(g: torch.Tensor, means: list[torch.Tensor], eps: float) -> torch.Tensor:
    """The gradient divided by the root of its mean square, as estimated from rows and columns."""
    if len(means) == 1:
        square = means[0].clone()
    else:
        square = means[0] @ means[1]
        square.div_(means[0].mean(dim=-2, keepdim=True).clamp_(min=eps))
    return square.clamp_(min=eps * eps).rsqrt_().mul_(g)
