"""autograd.Function: a user's own forward and backward as one node of the tape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import AutogradError, OnefoldTypeError
from . import interp
from .autograd import Node, Output
from .meta import Meta
from .tensor import Tensor


class Context:
    """What forward leaves for backward: saved tensors and any attributes."""

    def __init__(self) -> None:
        self._saved: tuple[Tensor | None, ...] = ()
        self._versions: tuple[int, ...] = ()
        self._not_differentiable: set[int] = set()
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for backward, where `saved_tensors` gives them back."""
        self._saved = tensors
        self._versions = tuple(0 if t is None else t.version for t in tensors)

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        for tensor, version in zip(self._saved, self._versions, strict=True):
            if tensor is not None and tensor.version != version:
                raise AutogradError(
                    "one of the variables needed for gradient computation has been modified by "
                    "an inplace operation since save_for_backward"
                )
        return self._saved

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Outputs that get no gradient."""
        self._not_differentiable.update(map(id, tensors))


class _Apply:
    """A Function as the tape sees it."""

    def __init__(self, function: type[Function], ctx: Context) -> None:
        self.name = function.__name__
        self.function = function
        self.ctx = ctx

    def vjp(self, needs: Sequence[object], dy: Any, y: Any, *args: Any) -> tuple[Any, ...]:
        grads = self.function.backward(self.ctx, *(dy if isinstance(dy, tuple) else (dy,)))
        grads = grads if isinstance(grads, tuple) else (grads,)
        if len(grads) != len(needs):
            raise AutogradError(
                f"{self.name}.backward returned {len(grads)} gradients, but forward got "
                f"{len(needs)} arguments; return one per argument, None where there is none"
            )
        for index, gradient in enumerate(grads):
            if gradient is not None and not isinstance(gradient, Tensor):
                raise OnefoldTypeError(
                    f"{self.name}.backward: gradient {index} must be a Tensor or None, but got "
                    f"{type(gradient).__name__}"
                )
        return grads


class Function:
    """The base of operations with a gradient of their own; forward and backward are static.

    >>> import onefold as flow
    >>> class Cube(flow.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x * x
    ...     @staticmethod
    ...     def backward(ctx, dy):
    ...         (x,) = ctx.saved_tensors
    ...         return dy * 3 * x * x
    >>> x = flow.tensor([2.0], requires_grad=True)
    >>> Cube.apply(x).sum().backward()
    >>> x.grad.numpy()
    array([12.], dtype=float32)
    """

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        raise NotImplementedError("an autograd.Function needs a static forward(ctx, *args)")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("an autograd.Function needs a static backward(ctx, *grads)")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run forward, recorded as one node."""
        ctx = Context()
        parents = tuple(arg.node if isinstance(arg, Tensor) else None for arg in args)
        ctx.needs_input_grad = tuple(parent is not None for parent in parents)
        with interp.grad_mode(False):
            result = cls.forward(ctx, *args)
        if not interp.grad_enabled or not any(parents):
            return result
        outputs = result if isinstance(result, tuple) else (result,)
        metas: tuple[Meta, ...] = tuple(output.meta for output in outputs)
        several = isinstance(result, tuple)
        node = Node(_Apply(cls, ctx), parents, (), None, metas if several else metas[0])
        fresh = []
        for index, output in enumerate(outputs):
            y = Tensor(output.shards, output.meta)
            y.shared = output.shared = True
            if output.meta.is_floating and id(output) not in ctx._not_differentiable:
                y.node = Output(node, index) if several else node
            fresh.append(y)
        return tuple(fresh) if several else fresh[0]
