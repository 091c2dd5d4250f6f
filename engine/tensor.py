"""Tensor: one logical value, as the shards that this process holds and a Meta."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from operator import index
from types import MethodType
from typing import TYPE_CHECKING, Unpack, cast, overload
from weakref import ReferenceType

import torch
from numpy import ndarray, number
from numpy.typing import DTypeLike

from ..errors import OnefoldIndexError, OnefoldRuntimeError, OnefoldTypeError
from .argument_errors import checks_own_arguments, handle_error, with_argument_errors
from .argument_types import Number, TypedLayout
from .meta import Meta
from .methods import INPLACE, INPLACE_OPERATORS, METHODS, OPERATORS
from .names import Function, Names, find_name, find_torch_form, names
from .placed_device import PlacedDevice
from .placement import Placement
from .sbp import NdSbp
from .tensor_attributes import TensorAttributes

if TYPE_CHECKING:
    from .autograd_tape import Edge, Leaf
    from .views import ViewStep

Shards = tuple[torch.Tensor, ...]

_new = object.__new__

# Arguments that torch's Python functions pass on, with the values that have no effect.
_NO_EFFECT: dict[str, tuple[object, ...]] = {
    "inplace": (False,),
    "_stacklevel": (3, 5),
    "size_average": (None,),
    "reduce": (None,),
    "max_norm": (None,),
    "norm_type": (2.0,),
    "scale_grad_by_freq": (False,),
    "sparse": (False,),
}


def _no_such_dim(dim: int, ndim: int) -> str:
    if not ndim:
        return f"Dimension specified as {dim} but tensor has no dimensions"
    return (
        f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})"
    )


class method:
    """A tensor method that is the function of a name in the table of names.

    Ops are defined in a higher layer, so the name is looked up when the method is first used; from
    then on the class has the function itself, which is as fast as a method defined here.
    """

    __slots__ = ("_attribute", "_name")

    def __init__(self, name: str, attribute: str = "") -> None:
        self._name = name
        self._attribute = attribute

    def __set_name__(self, owner: type, attribute: str) -> None:
        self._attribute = attribute

    def __get__(self, x: Tensor | None, owner: type) -> Function:
        function: Function = getattr(names, self._name)
        if not self._attribute.startswith("__"):
            function = with_argument_errors(function)
        setattr(Tensor, self._attribute, function)
        return function if x is None else MethodType(function, x)


def inplace(name: str) -> Callable[..., Tensor]:
    """The in-place form (`name_`) of an op: the named tensor takes the op's result."""

    def call(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        try:
            return tensor_ops.assign_result(self, name, *args, **kwargs)
        except Exception as error:
            numbers = handle_error(getattr(names, name), error, (self, *args), kwargs)
            if numbers is None:
                raise
        return call(*numbers[0], **numbers[1])

    call.__name__ = name + "_"
    call.__doc__ = f"`{name}` in place; see `onefold.{name}`."
    return checks_own_arguments(call)


class Tensor(TensorAttributes):
    """One logical value laid over devices: `meta`, and `shards` for the ranks this process owns.

    `shards` follow the order of the placement's ranks: one in a launched world, all in a virtual
    one, none on a process outside the placement; a local tensor has exactly one.

    `Tensor(2, 3)` is uninitialized, `Tensor([2, 3])` has the values of the list, both in the
    default dtype; `device=`, or `placement=` and `sbp=`, say where.
    """

    # `__dict__` is for the attributes that programs give a tensor.
    __slots__ = (
        "__dict__", "__weakref__", "_base", "_frozen_leaf", "_low_copy", "_step", "_view", "_views",
        "meta", "node", "shards", "shared", "version",
    )  # fmt: skip

    shards: Shards
    meta: Meta
    node: Edge | None  # its place on the tape; None: it needs no gradient
    version: int  # the number of its last in-place change (`interpreter.stamp`), 0 if none
    shared: bool  # its memory may belong to another tensor too, so in-place ops copy first
    _frozen_leaf: Leaf  # set once it no longer requires grad, or gets a `.grad` without
    _low_copy: tuple[Tensor, Shards, int]  # set where a cast was made with it; see `cached_cast`
    # Set only in tensors that are `shared`; see `views`.
    _base: Tensor | None
    _step: ViewStep
    _view: ReferenceType[Tensor]  # the last view of this tensor
    _views: list[ReferenceType[Tensor]]  # those before it, if they were in use then

    def __init__(self, *data: object, **layout: Unpack[TypedLayout]) -> None:
        names.init_tensor(self, data, layout)

    # Shape, dtype and layout.

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
    def device(self) -> torch.device | PlacedDevice:
        return self.meta.device or PlacedDevice(self.meta.global_placement)

    @overload
    def size(self) -> torch.Size: ...

    @overload
    def size(self, dim: int) -> int: ...

    def size(self, dim: int | None = None) -> torch.Size | int:
        if dim is None:
            return self.meta.shape
        try:
            return self.meta.shape[index(dim)]
        except IndexError:
            raise OnefoldIndexError(f"size: {_no_such_dim(dim, len(self.meta.shape))}") from None
        except TypeError:
            raise OnefoldTypeError(f"size: dim must be an int, but got {dim!r}") from None

    def dim(self) -> int:
        return len(self.meta.shape)

    ndimension = dim

    def numel(self) -> int:
        return self.meta.numel

    nelement = numel

    def __len__(self) -> int:
        if not self.meta.shape:
            raise OnefoldTypeError("len() of a 0-d tensor; use numel() for the element count")
        return self.meta.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.meta.shape:
            raise OnefoldTypeError("iteration over a 0-d tensor; use item() for its value")
        return iter(names.unbind(self, 0))

    def __contains__(self, element: Tensor | Number) -> bool:
        if not isinstance(element, (Tensor, bool, int, float, complex, number)):
            raise OnefoldRuntimeError(
                "`in` asks a tensor for a number or Tensor among its elements, but got "
                f"{type(element).__name__}"
            )
        return bool(names.any(names.eq(self, element)))

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
    def is_lazy(self) -> bool:
        """Whether it stands for a value of a graph that is being captured."""
        return not isinstance(self.shards, tuple)

    @property
    def is_leaf(self) -> bool:
        return self.node is None or self.node.is_leaf

    @property
    def grad(self) -> Tensor | None:
        node = self.node
        if node is None:
            node = getattr(self, "_frozen_leaf", None)
        return None if node is None else node.grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        names.set_grad(self, value)

    @grad.deleter
    def grad(self) -> None:
        names.set_grad(self, None)

    @property
    def grad_fn(self) -> Edge | None:
        return None if self.is_leaf else self.node

    def where(self, condition: Tensor, other: Tensor | Number) -> Tensor:
        """This tensor where the condition holds, else `other`."""
        return tensor_ops.where(condition, self, other)

    detach_ = method("detach_")

    # Operators; those with the tensor on the left are in methods.py.

    def __rsub__(self, other: Tensor | Number) -> Tensor:
        return tensor_ops.sub(other, self)

    def __rtruediv__(self, other: Tensor | Number) -> Tensor:
        return tensor_ops.div(other, self)

    def __rpow__(self, other: Tensor | Number) -> Tensor:
        return tensor_ops.pow(other, self)

    def __rmatmul__(self, other: Tensor | Number) -> Tensor:
        return tensor_ops.matmul(other, self)

    def __rfloordiv__(self, other: Tensor | Number) -> Tensor:
        return tensor_ops.floor_divide(other, self)

    def __rlshift__(self, other: Tensor | Number) -> Tensor:
        return tensor_ops.bitwise_left_shift(other, self)

    def __rrshift__(self, other: Tensor | Number) -> Tensor:
        return tensor_ops.bitwise_right_shift(other, self)

    def __rmod__(self, other: Tensor | Number) -> Tensor:
        return tensor_ops.remainder(other, self)

    # Values.

    def __float__(self) -> float:
        return float(names.item(self))

    def __int__(self) -> int:
        return int(names.item(self))

    def _repr_html_(self) -> str | None:
        """The tensor in a notebook."""
        html: str | None = names.tensor_html(self)
        return html

    # So that numpy leaves an operator between a number or array of its own and a tensor to us.
    __array_priority__ = 1000

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> ndarray:
        if self.node is not None and not self.is_lazy:
            raise OnefoldRuntimeError(
                f"a tensor of shape {tuple(self.shape)} that requires grad was made a numpy array, "
                "from which no gradient flows back. Use x.detach().numpy() for its values, or a "
                "function of onefold in place of numpy's"
            )
        array: ndarray = names.numpy(self)
        return array if dtype is None else array.astype(dtype)

    def __array_wrap__(
        self, array: ndarray, context: object = None, return_scalar: bool = False
    ) -> Tensor | ndarray:
        """The result of a numpy function on a local tensor: a tensor, as in torch."""
        return array if self.is_global else tensor_ops.tensor(array)

    def __dlpack__(self, **options: object) -> object:
        return names.to_torch(self).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[IntEnum, int]:
        whole: torch.Tensor = names.to_torch(self)
        return whole.__dlpack_device__()

    def __deepcopy__(self, memo: dict[int, object]) -> Tensor:
        return tensor_ops.deep_copy(self, memo)

    def __copy__(self) -> Tensor:
        return tensor_ops.shallow_copy(self)

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        parts: tuple[object, ...] = names.reduce_tensor(self)
        return parts

    @property
    def data(self) -> Tensor:
        """The same tensor without history; assigning takes another tensor's value."""
        return tensor_ops.detach(self)

    @data.setter
    def data(self, value: Tensor) -> None:
        names.set_data(self, value)

    @property
    def T(self) -> Tensor:
        return tensor_ops.reversed_dims(self)

    @property
    def mT(self) -> Tensor:
        return tensor_ops.matrix_transpose(self)

    @property
    def H(self) -> Tensor:
        return tensor_ops.hermitian(self)

    @property
    def mH(self) -> Tensor:
        return tensor_ops.batch_hermitian(self)

    @classmethod
    def __torch_function__(
        cls,
        func: Function,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Send a torch function called on our tensors to our op of the same name."""
        name = getattr(func, "__name__", "")
        # torch.linalg.inv calls itself linalg_inv, and the function behind threshold _threshold.
        known = (name, name.removeprefix("_"), name.replace("_", ".", 1))
        # Some functions of torch and of torch.nn.functional have the same name only.
        find = find_torch_form if func is getattr(torch, name, None) else find_name
        ours = next(filter(None, map(find, known)), None)
        if ours is None:
            raise OnefoldTypeError(
                f"torch.{name} was called on an onefold Tensor, but onefold has no op named "
                f"{name!r}; convert with x.to_torch() first"
            )
        ours = with_argument_errors(ours)
        named = dict(kwargs or ())
        out = named.pop("out", None)
        given = {
            key: value
            for key, value in named.items()
            if key not in _NO_EFFECT or value not in _NO_EFFECT[key]
        }
        return ours(*args, **given) if out is None else names.give_to(out, ours(*args, **given))


def from_shards(shards: Shards, meta: Meta, node: Edge | None = None) -> Tensor:
    """A tensor of these shards, in the layout of `meta`."""
    x = _new(Tensor)
    x.shards = shards
    x.meta = meta
    x.node = node
    x.version = 0
    x.shared = False
    return x


def hold(x: Tensor, shards: Shards, meta: Meta) -> None:
    """Initialize a new tensor, which may be of a subclass, with its shards."""
    x.shards = shards
    x.meta = meta
    x.node = None
    x.version = 0
    x.shared = False


tensor_ops = cast("Names[Tensor]", names)  # the same table, for functions that return a tensor


def add_method(name: str) -> None:
    """Add a tensor method that calls the function of this name."""
    METHODS.append(name)
    setattr(Tensor, name, method(name, name))


def add_inplace_method(name: str) -> None:
    """Add a tensor method `name_` that writes the result of the function into the tensor."""
    INPLACE.append(name)
    setattr(Tensor, f"{name}_", inplace(name))


for _name in METHODS:
    setattr(Tensor, _name, method(_name, _name))
for _name in INPLACE:
    setattr(Tensor, f"{_name}_", inplace(_name))
for _attribute, _name in OPERATORS.items():
    setattr(Tensor, _attribute, method(_name, _attribute))
for _attribute, _name in INPLACE_OPERATORS.items():
    setattr(Tensor, _attribute, inplace(_name))
