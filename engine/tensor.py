"""Tensor: one logical value, as the shards that this process holds and a Meta."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MethodType
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType

import torch

from ..errors import OnefoldRuntimeError, OnefoldTypeError
from .meta import Meta
from .methods import INPLACE, METHODS
from .names import find_name, names
from .placement import Placement
from .sbp import NdSbp

if TYPE_CHECKING:
    from .tape import Edge
    from .views import Step

Shards = tuple[torch.Tensor, ...]

# What torch's Python functions pass on although it asks for nothing.
_NO_EFFECT: dict[str, tuple[Any, ...]] = {
    "inplace": (False,),
    "out": (None,),
    "_stacklevel": (3, 5),
    "size_average": (None,),
    "reduce": (None,),
    "max_norm": (None,),
    "norm_type": (2.0,),
    "scale_grad_by_freq": (False,),
    "sparse": (False,),
}


class method:
    """A tensor method that is the function of a name in the table of names.

    Ops are defined above tensors, so the name is looked up when the method is first used; from
    then on the class has the function itself, which calls at the speed of a method written out.
    """

    __slots__ = ("_attribute", "_name")

    def __init__(self, name: str, attribute: str = "") -> None:
        self._name = name
        self._attribute = attribute

    def __set_name__(self, owner: type, attribute: str) -> None:
        self._attribute = attribute

    def __get__(self, x: Tensor | None, owner: type) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(names, self._name)
        setattr(Tensor, self._attribute, function)
        return function if x is None else MethodType(function, x)


def inplace(name: str) -> Callable[..., Any]:
    """The in-place form (`name_`) of an op: the named tensor takes the op's result."""

    def call(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return names.assign_result(self, name, *args, **kwargs)

    call.__name__ = name + "_"
    call.__doc__ = f"`{name}` in place; see `onefold.{name}`."
    return call


class Tensor:
    """One logical value laid over devices: `meta`, and `shards` for the ranks this process owns.

    Made by `flow.tensor`, `flow.zeros` and their kin, not directly. `shards` follow the order of
    the placement's ranks: one in a launched world, all in a virtual one, none on a process
    outside the placement; a local tensor has exactly one.
    """

    __slots__ = ("__weakref__", "_base", "_step", "_views", "meta", "node", "shards", "shared", "version")

    shards: Shards
    meta: Meta
    node: Edge | None  # what made it, as far as gradients go; None: needs no gradient
    version: int  # the number of its last in-place change (`interp.stamp`), 0 if none
    shared: bool  # its memory may belong to another tensor too, so in-place work copies first
    # Of views and their bases only, which are `shared`; see `views`. Ordinary tensors have none.
    _base: Tensor
    _step: Step
    _views: list[ReferenceType[Tensor]]

    def __init__(self, shards: Shards, meta: Meta, node: Edge | None = None) -> None:
        self.shards = shards
        self.meta = meta
        self.node = node
        self.version = 0
        self.shared = False

    # What it is.

    @property
    def shape(self) -> torch.Size:
        return self.meta.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.meta.dtype

    @property
    def ndim(self) -> int:
        return len(self.meta.shape)

    @property
    def is_global(self) -> bool:
        return self.meta.placement is not None

    @property
    def is_local(self) -> bool:
        return self.meta.placement is None

    @property
    def placement(self) -> Placement:
        if self.meta.placement is None:
            raise OnefoldRuntimeError(
                "Only global tensors have 'placement'. This one is local: use '.device', or make "
                "it global with .to_global(placement=..., sbp=...)."
            )
        return self.meta.placement

    @property
    def sbp(self) -> NdSbp:
        if self.meta.placement is None:
            raise OnefoldRuntimeError(
                "Local tensor has no sbp property. Make it global with "
                ".to_global(placement=..., sbp=...) first."
            )
        return self.meta.nd_sbp

    @property
    def device(self) -> torch.device:
        if self.meta.device is None:
            raise OnefoldRuntimeError(
                "Only local tensors have 'device'. Please use '.placement' for global tensors."
            )
        return self.meta.device

    @property
    def is_cuda(self) -> bool:
        kind = self.meta.device.type if self.meta.device else self.placement.type
        return kind == "cuda"

    @property
    def is_sparse(self) -> bool:
        return False

    def size(self, dim: int | None = None) -> Any:
        return self.meta.shape if dim is None else self.meta.shape[dim]

    def dim(self) -> int:
        return len(self.meta.shape)

    ndimension = dim

    def numel(self) -> int:
        return self.meta.numel

    nelement = numel

    def element_size(self) -> int:
        return self.meta.dtype.itemsize

    def is_floating_point(self) -> bool:
        return self.meta.dtype.is_floating_point

    def is_complex(self) -> bool:
        return self.meta.dtype.is_complex

    def __len__(self) -> int:
        if not self.meta.shape:
            raise OnefoldTypeError("len() of a 0-d tensor; use numel() for the element count")
        return self.meta.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.meta.shape:
            raise OnefoldTypeError("iteration over a 0-d tensor; use item() for its value")
        return iter(names.unbind(self, 0))

    __hash__ = object.__hash__

    # Gradients.

    @property
    def requires_grad(self) -> bool:
        return self.node is not None

    @requires_grad.setter
    def requires_grad(self, mode: bool) -> None:
        names.set_requires_grad(self, mode)

    def requires_grad_(self, mode: bool = True) -> Tensor:
        names.set_requires_grad(self, mode)
        return self

    @property
    def is_leaf(self) -> bool:
        return self.node is None or self.node.is_leaf

    @property
    def grad(self) -> Tensor | None:
        return None if self.node is None else self.node.grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        names.set_grad(self, value)

    @grad.deleter
    def grad(self) -> None:
        names.set_grad(self, None)

    @property
    def grad_fn(self) -> Edge | None:
        return None if self.is_leaf else self.node

    backward = method("backward")
    register_hook = method("register_hook")
    retain_grad = method("retain_grad")
    detach = method("detach")

    def where(self, condition: Tensor, other: Any) -> Tensor:
        """This tensor where the condition holds, else `other`."""
        return names.where(condition, self, other)  # type: ignore[no-any-return]

    detach_ = method("detach_")

    # Operators.

    __add__ = method("add")
    __radd__ = method("add")
    __sub__ = method("sub")
    __mul__ = method("mul")
    __rmul__ = method("mul")
    __truediv__ = method("div")
    __matmul__ = method("matmul")
    __neg__ = method("neg")
    __pow__ = method("pow")
    __floordiv__ = method("floor_divide")
    __mod__ = method("remainder")
    __abs__ = method("abs")
    __invert__ = method("bitwise_not")
    __and__ = method("bitwise_and")
    __rand__ = method("bitwise_and")
    __or__ = method("bitwise_or")
    __ror__ = method("bitwise_or")
    __xor__ = method("bitwise_xor")
    __rxor__ = method("bitwise_xor")
    __lshift__ = method("bitwise_left_shift")
    __rshift__ = method("bitwise_right_shift")
    __eq__ = method("eq")
    __ne__ = method("ne")
    __lt__ = method("lt")
    __le__ = method("le")
    __gt__ = method("gt")
    __ge__ = method("ge")
    __getitem__ = method("getitem")
    __setitem__ = method("setitem_")
    __iadd__ = method("add_")
    __isub__ = method("sub_")
    __imul__ = method("mul_")
    __itruediv__ = method("div_")
    __ifloordiv__ = inplace("floor_divide")
    __imod__ = inplace("remainder")
    __ipow__ = inplace("pow")
    __iand__ = inplace("bitwise_and")
    __ior__ = inplace("bitwise_or")
    __ixor__ = inplace("bitwise_xor")

    def __rsub__(self, other: Any) -> Tensor:
        return names.sub(other, self)  # type: ignore[no-any-return]

    def __rtruediv__(self, other: Any) -> Tensor:
        return names.div(other, self)  # type: ignore[no-any-return]

    def __rpow__(self, other: Any) -> Tensor:
        return names.pow(other, self)  # type: ignore[no-any-return]

    def __rmatmul__(self, other: Any) -> Tensor:
        return names.matmul(other, self)  # type: ignore[no-any-return]

    def __rfloordiv__(self, other: Any) -> Tensor:
        return names.floor_divide(other, self)  # type: ignore[no-any-return]

    def __rmod__(self, other: Any) -> Tensor:
        return names.remainder(other, self)  # type: ignore[no-any-return]

    # Values.

    __repr__ = method("describe")
    __bool__ = method("to_bool")
    __index__ = method("to_index")

    def __float__(self) -> float:
        return float(names.item(self))

    def __int__(self) -> int:
        return int(names.item(self))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = names.numpy(self)
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return names.to_torch(self).__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return names.to_torch(self).__dlpack_device__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return names.deep_copy(self, memo)  # type: ignore[no-any-return]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise OnefoldTypeError(
            "a Tensor is not pickled directly, since its shards live on many processes; save its "
            "value (x.numpy()) or a state_dict"
        )

    @property
    def data(self) -> Tensor:
        """The same tensor without history; assigning takes another tensor's value."""
        return names.detach(self)  # type: ignore[no-any-return]

    @data.setter
    def data(self, value: Tensor) -> None:
        names.set_data(self, value)

    @property
    def T(self) -> Tensor:
        return names.reversed_dims(self)  # type: ignore[no-any-return]

    @property
    def mT(self) -> Tensor:
        return names.matrix_transpose(self)  # type: ignore[no-any-return]

    @property
    def H(self) -> Tensor:
        return names.hermitian(self)  # type: ignore[no-any-return]

    @property
    def mH(self) -> Tensor:
        return names.batch_hermitian(self)  # type: ignore[no-any-return]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Send a torch function called on our tensors to our op of the same name."""
        name = getattr(func, "__name__", "")
        ours = find_name(name)
        if ours is None:
            raise OnefoldTypeError(
                f"torch.{name} was called on an onefold Tensor, but onefold has no op named "
                f"{name!r}; convert with x.to_torch() first"
            )
        given = {
            key: value
            for key, value in (kwargs or {}).items()
            if key not in _NO_EFFECT or value not in _NO_EFFECT[key]
        }
        return ours(*args, **given)

    if TYPE_CHECKING:
        # The methods named in methods.py; their arguments are torch's.
        def __getattr__(self, name: str) -> Callable[..., Any]: ...


for _name in METHODS:
    setattr(Tensor, _name, method(_name, _name))
for _name in INPLACE:
    setattr(Tensor, _name + "_", inplace(_name))
