"""Full backward hooks: what is called with the gradients of a module's inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ..engine import interpreter
from ..engine.autograd_function import Function, zeros_of
from ..engine.tensor import Tensor
from ..errors import OnefoldRuntimeError

Gradients: TypeAlias = tuple[Tensor | None, ...]
Change: TypeAlias = Callable[[Gradients], Gradients]
Hook: TypeAlias = Callable[..., Any]


class _Watched(Function):
    """The identity of several tensors, whose gradients pass through a function together."""

    @staticmethod
    def forward(ctx: Any, change: Change, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.change = change
        ctx.set_materialize_grads(False)
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Gradients:
        return (None, *ctx.change(grads))


class BackwardHooks:
    """The hooks of one call of a module: `inputs` before forward, `outputs` after it."""

    def __init__(self, module: object, hooks: Sequence[Hook], before: Sequence[Hook]) -> None:
        self._module = module
        self._hooks = hooks
        self._before = before
        self._of_outputs: Gradients = ()
        self._inputs = 0
        self._watches_inputs = False

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The positional arguments, through which the gradients of inputs reach the hooks."""
        self._inputs = len(args)
        places = _tensors(args)
        self._watches_inputs = any(args[at].requires_grad for at in places)
        if not self._watches_inputs:
            return args
        return _watched(args, places, self._on_inputs, zeros=True)

    def outputs(self, result: Any) -> Any:
        """The result, through which the gradients of outputs reach the hooks."""
        whole = result if isinstance(result, tuple) else (result,)
        found = _watched(whole, _tensors(whole), self._on_outputs)
        return found if isinstance(result, tuple) else found[0]

    def _on_outputs(self, grads: Gradients) -> Gradients:
        for hook in self._before:
            changed = hook(self._module, grads)
            if changed is not None:
                grads = _checked(changed, len(grads), "Backward pre hook", "grad_output")
        self._of_outputs = grads
        if not self._watches_inputs:  # then the hooks are called here
            none: Gradients = (None,) * self._inputs
            for hook in self._hooks:
                changed = hook(self._module, none, grads)
                if changed is not None and any(part is not None for part in changed):
                    raise OnefoldRuntimeError(
                        "Backward hook for Modules where no input requires gradient should always "
                        "return None or None for all gradients."
                    )
        return grads

    def _on_inputs(self, grads: Gradients) -> Gradients:
        for hook in self._hooks:
            changed = hook(self._module, grads, self._of_outputs)
            if changed is not None:
                grads = _checked(changed, len(grads), "Backward hook", "grad_input")
        self._of_outputs = ()  # the tape may keep this object
        return grads


def _tensors(values: tuple[Any, ...]) -> list[int]:
    return [at for at, value in enumerate(values) if isinstance(value, Tensor)]


def _watched(
    values: tuple[Any, ...], places: list[int], change: Change, zeros: bool = False
) -> tuple[Any, ...]:
    """The values, with the gradients of tensors among them passed through `change`.

    With `zeros` it gets zeros instead of None for tensors, as torch's hooks do for inputs.
    """
    needed = [at for at in places if values[at].requires_grad]
    if not interpreter.is_grad_enabled() or not needed:
        return values

    def change_needed(grads: Gradients) -> Gradients:
        wide: list[Tensor | None] = [None] * number
        for at, grad in zip(needed, grads, strict=True):
            wide[at] = grad
        for at, meta in metas.items():
            wide[at] = zeros_of(meta) if wide[at] is None else wide[at]
        changed = change(tuple(wide))
        return tuple([changed[at] for at in needed])

    number = len(values)
    metas = {at: values[at].meta for at in places if zeros}  # not the tensors, which take memory
    watched = list(values)
    found = _Watched.apply(change_needed, *(values[at] for at in needed))
    for at, tensor in zip(needed, found, strict=True):
        watched[at] = tensor
    return tuple(watched)


def _checked(changed: object, number: int, what: str, name: str) -> Gradients:
    found = changed if isinstance(changed, tuple) else (changed,)
    if len(found) != number:
        raise OnefoldRuntimeError(
            f"{what} returned an invalid number of {name}, got {len(found)}, but expected {number}"
        )
    return found
