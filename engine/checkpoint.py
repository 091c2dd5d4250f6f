"""checkpoint: keep a function's inputs instead of its activations, and run it again in backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import interp
from .autograd import _run as run_backward
from .function import Function
from .generator import default_generator
from .tensor import Tensor


class _Checkpoint(Function):
    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], *args: Any) -> Any:
        ctx.function = function
        ctx.random = default_generator.get_state()
        ctx.save_for_backward(*[arg if isinstance(arg, Tensor) else None for arg in args])
        ctx.others = [None if isinstance(arg, Tensor) else arg for arg in args]
        return function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        inputs: list[Any] = []
        for saved, other in zip(ctx.saved_tensors, ctx.others, strict=True):
            if saved is None:
                inputs.append(other)
                continue
            twin = Tensor(saved.shards, saved.meta)
            twin.shared = saved.shared = True
            if saved.node is not None:
                twin.requires_grad = True
            inputs.append(twin)
        now = default_generator.get_state()
        default_generator.set_state(ctx.random)  # the same dropout masks as the first time
        try:
            with interp.grad_mode(True):
                result = ctx.function(*inputs)
        finally:
            default_generator.set_state(now)
        outputs = result if isinstance(result, tuple) else (result,)
        wanted = [
            (output, grad)
            for output, grad in zip(outputs, grads, strict=True)
            if grad is not None and output.node is not None
        ]
        run_backward([o for o, _ in wanted], [g for _, g in wanted], False, False, None)
        return (None, *[arg.grad if isinstance(arg, Tensor) else None for arg in inputs])


def checkpoint(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, whose activations are computed again in backward instead of kept.

    Random numbers repeat. Parameters that the function reads get their gradients as usual. Source:
    Chen et al., "Training deep nets with sublinear memory cost" (2016).

    >>> import onefold as flow
    >>> x = flow.tensor([3.0], requires_grad=True)
    >>> flow.checkpoint.checkpoint(lambda x: x * x, x).sum().backward()
    >>> x.grad.numpy()
    array([6.], dtype=float32)
    """
    return _Checkpoint.apply(function, *args)
