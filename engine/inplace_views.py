"""In-place methods that give a tensor another shape: t_, squeeze_, as_strided_, resize_ and set_.

`x.t_()` makes x a view of what it was, so that it still changes with its base and its views.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import ref

from ..errors import OnefoldRuntimeError
from . import interpreter
from .argument_errors import with_argument_errors
from .names import names, register_as
from .tensor import Tensor, from_shards
from .view_writes import check_change
from .views import add_view, base_of, give_views, views_of


def check_reshaped(x: Tensor, what: str) -> None:
    """Raise OnefoldRuntimeError for a tensor from outside of a graph that is being captured."""
    if interpreter.capturing() and isinstance(x.shards, tuple):
        raise OnefoldRuntimeError(
            f"{what}: a tensor from outside keeps its shape while a graph is captured; use the "
            "out-of-place form"
        )


def _stands_for(x: Tensor) -> Tensor:
    """A tensor that takes over the value, the place on the tape, the base and the views of `x`."""
    leaf = x.node is not None and x.node.is_leaf
    made = from_shards(x.shards, x.meta, None if leaf else x.node)
    made.shared, made.version = True, x.version
    base = base_of(x) if x.shared else None
    made._base = base
    if base is not None:
        made._step = x._step
        add_view(base, ref(made))
    give_views(views_of(x) if x.shared else (), made)
    return made


def become_view(self: Tensor, name: str, *args: object, **kwargs: object) -> Tensor:
    """`self` becomes the view that the op `name` makes of it.

    Raises AutogradError for a leaf that requires grad.
    """
    check_change(self, f"{name}_")
    check_reshaped(self, f"{name}_")
    function: Callable[..., Tensor] = with_argument_errors(getattr(names, name))
    if function(self, *args, **kwargs) is self:
        return self
    before = _stands_for(self)
    view = function(before, *args, **kwargs)
    base = base_of(view)
    assert base is not None
    self.shards, self.meta, self.shared = view.shards, view.meta, True
    self._base, self._step = base, view._step
    give_views((), self)
    add_view(base, ref(self))
    self.version = interpreter.stamp()
    if interpreter.is_grad_enabled():
        self.node = view.node
    return self


def _register(name: str) -> None:
    def call(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        return become_view(self, name, *args, **kwargs)

    register_as(f"{name}_", call, f"`{name}` in place; see `onefold.{name}`.")


for _name in "as_strided squeeze swapaxes swapdims t transpose unsqueeze".split():
    _register(_name)
