"""A row of `torch_table`, read: a function of torch, its parameters and its batch dims."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import torch

from ...errors import OnefoldValueError
from ...kernels import search_ref
from ..argument_types import Dims, Number, Sizes
from ..generated import function
from ..meta import Shape
from ..out_tensors import OUT, OUTS
from ..tensor import Tensor
from . import torch_table
from .torch_function import TorchFunction
from .torch_op import Arguments, Constant, Slot

# The types of parameters by name, where they are neither tensors nor known from a default value.
_TYPES: dict[str, Any] = {
    **dict.fromkeys("alpha max min other q".split(), Tensor | Number),
    **dict.fromkeys("atol boundaries dx rcond rtol spacing tol".split(), Tensor | Number),
    **dict.fromkeys("dim dims s".split(), Dims),
    **dict.fromkeys("dilation kernel_size output_padding padding stride".split(), Sizes),
    **dict.fromkeys("normalized_shape output_size shape size".split(), Sizes),
    **dict.fromkeys("output_ratio scale_factor".split(), float | Sequence[float]),
    **dict.fromkeys("input_lengths target_lengths".split(), Tensor | Sequence[int]),
    **dict.fromkeys("C HxW M N group groups hop_length length n_fft".split(), int),
    **dict.fromkeys("padding_idx storage_offset win_length window_length".split(), int),
    **dict.fromkeys("divisor_override interpolation_mode padding_mode".split(), int | str),
    **dict.fromkeys("driver norm side".split(), str),
    **dict.fromkeys("align_corners onesided recompute_scale_factor upper".split(), bool),
    **dict.fromkeys("align_to_window return_complex size_average".split(), bool),
    **dict.fromkeys("eps max_norm maxnorm norm_type".split(), float),
    **dict.fromkeys("a range".split(), Sequence[float]),
    **dict.fromkeys("ord p".split(), float | str),
    "bins": Tensor | Dims,
    "center": float | bool,
    "dtype": torch.dtype,
    "n": Tensor | int,
    "reduce": bool | str,
    "tensors": Sequence[Tensor],
}

LocalFunction = Callable[..., torch.Tensor | Sequence[torch.Tensor]]
_RULE = re.compile(
    r"(each|but( \d+)+|but dim|lead \d+|first \d+|values \w+|bilinear|sorted|quantile|signal|solve"
    r"|none|vector)( linear| constant| reduced| view)*"
)
_ROW = re.compile(r"([\w.]+)\((.*)\)(?: -> ([\w, ]+|\*))?: (.*)")


class Row:
    """One row, read: torch's function, its parameters, the names of outputs and the batch dims."""

    def __init__(
        self,
        name: str,
        signature: inspect.Signature,
        outputs: Sequence[str],
        rule: str,
        function: LocalFunction,
    ) -> None:
        if not _RULE.fullmatch(rule):
            raise OnefoldValueError(
                f"{name}: {rule!r} is not a rule for batch dims, such as 'each', 'but 2', "
                "'but dim', 'lead 1' or 'none', then 'linear' or 'constant'"
            )
        self.name = name
        self.signature = signature
        self.counted = list(outputs) == ["*"]
        self.outputs = [] if self.counted else list(outputs)
        self.words = words = rule.split()
        self.function = function
        self.ops: dict[int, TorchFunction] = {}  # by their numbers of outputs
        self.linear = "linear" in words
        self.differentiable = "constant" not in words
        self.reduced = "reduced" in words
        self.view = "view" in words
        self.kind = words[0]
        self.numbers = [int(word) for word in words[1:] if word.isdigit()]
        self.by_dim = words[1:2] == ["dim"]

    def whole(self, shapes: Sequence[Shape], arguments: Arguments) -> list[set[int]]:
        """The dims of each tensor input that must be whole."""
        given = self.named(arguments)
        ranks = [len(shape) for shape in shapes]
        everything = [set(range(ndim)) for ndim in ranks]
        match self.kind:
            case "each":
                return [set() for _ in ranks]
            case "but" if self.by_dim:
                return [_dims(given["dim"], ndim) for ndim in ranks]
            case "but":
                numbers = [*self.numbers, *self.numbers[-1:] * len(ranks)]
                return [_last(n, ndim) for n, ndim in zip(numbers, ranks, strict=False)]
            case "lead":
                return [set(range(self.numbers[0], ndim)) for ndim in ranks]
            case "first":
                return [_last(self.numbers[0], ranks[0]), *everything[1:]]
            case "bilinear":
                return [_last(1, ranks[0]), _last(1, ranks[1]), *everything[2:]]
            case "values":
                batch = given[self.words[1]]
                return [set() if batch == Slot(i) else dims for i, dims in enumerate(everything)]
            case "sorted":
                values = given["input"]
                if ranks[0] == 1:
                    return [
                        set() if values == Slot(i) else dims for i, dims in enumerate(everything)
                    ]
                return [_last(1, ndim) for ndim in ranks]
            case "quantile":
                return [_dims(given["dim"], ranks[0]), *everything[1:]]
            case "signal":
                return [_last(1, ranks[0]), *everything[1:]]
            case "solve":
                a, b = shapes
                is_vector = len(b) == 1 or (len(a) - 1 == len(b) and a[:-1] == b)
                return [_last(2, len(a)), _last(1 if is_vector else 2, len(b))]
        return everything

    def named(self, arguments: Arguments) -> dict[str, object]:
        """Slots and constants by the names of parameters, with torch's defaults."""
        defaults = {name: each.default for name, each in self.signature.parameters.items()}
        named = dict(zip(defaults, arguments.positional, strict=False)) | dict(arguments.named)
        known = {name: _constant(form) for name, form in named.items()}
        return defaults | known


def _typed(signature: inspect.Signature, several: bool) -> inspect.Signature:
    """The parameters with their types; `several` is whether there are several outputs."""
    parameters = [
        each.replace(annotation=_type(each, several)) for each in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters)


def _type(parameter: inspect.Parameter, several: bool) -> object:
    default = parameter.default
    if parameter.name == "out":
        return (OUTS if several else OUT).annotation
    known: Any = Tensor if default in (parameter.empty, None) else type(default)
    if parameter.kind is not parameter.VAR_POSITIONAL:
        known = _TYPES.get(parameter.name, known)
    return known | None if default is None else known


def _constant(form: object) -> object:
    return form.value if isinstance(form, Constant) else form


def _last(count: int, ndim: int) -> set[int]:
    return set(range(max(0, ndim - count), ndim))


def _dims(dim: object, ndim: int) -> set[int]:
    """The dims that an argument names: a number, several of them, or None for all."""
    if dim is None:
        return set(range(ndim))
    forms = dim if isinstance(dim, tuple) else (dim,)
    dims = [_constant(form) for form in forms]
    return {dim % ndim for dim in dims if isinstance(dim, int) and -ndim <= dim < ndim}


def _embedding_bag(
    input: torch.Tensor,
    weight: torch.Tensor,
    offsets: torch.Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    *rest: Any,
    **named: Any,
) -> torch.Tensor:
    if max_norm is not None or sparse:
        raise OnefoldValueError(
            "embedding_bag: max_norm and sparse are not supported; renormalize the rows of the "
            "weight after each step, and use dense gradients"
        )
    how = (max_norm, norm_type, scale_grad_by_freq, mode, sparse)
    return torch.nn.functional.embedding_bag(input, weight, offsets, *how, *rest, **named)


def _embedding_bag_parts(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[torch.Tensor, ...]:
    """Torch leaves out parts where its kernel for a mode does not need them; `bag` has a spare."""
    integer = torch.promote_types(indices.dtype, offsets.dtype)
    indices, offsets = indices.to(integer), offsets.to(integer)
    y, bag, size, most = torch.embedding_bag(
        weight, indices, offsets, scale_grad_by_freq, mode, False, per_sample_weights,
        include_last_offset, padding_idx,
    )  # fmt: skip
    if indices.is_meta:
        size = size[: len(y)]
        return y, torch.empty_like(indices), size, most if most.ndim == 2 else size
    if mode == 0:
        place = torch.arange(len(indices), dtype=indices.dtype, device=indices.device)
        bag = torch.searchsorted(offsets, place, right=True).sub(1).clamp(max=len(y) - 1)
        counted = torch.ones_like(indices)
        if padding_idx is not None:
            counted = (indices != padding_idx % len(weight)).to(indices.dtype)
        size = torch.zeros_like(offsets[: len(y)]).index_add(0, bag, counted)
    return y, bag.to(indices.dtype, copy=True), size, most if most.ndim == 2 else size


def _ihfft(*args: Any, **named: Any) -> torch.Tensor:
    """Torch defers the conjugate that it ends with."""
    deferred: torch.Tensor = torch.fft.ihfft(*args, **named)
    return deferred.resolve_conj()


def _gamma_grad(input: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Torch has no form of it without data."""
    if input.is_meta:
        return input + output
    return torch._standard_gamma_grad(*torch.broadcast_tensors(input, output))


def _dirichlet_grad(x: torch.Tensor, alpha: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """Torch has no form of it without data."""
    if x.is_meta:
        return x + alpha + total
    return torch._dirichlet_grad(*torch.broadcast_tensors(x, alpha, total))


def _ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> torch.Tensor:
    """Torch has no form without data, where nothing says which lengths fit the targets."""
    if log_probs.is_meta:
        rows = log_probs.sum((0, 2)) if log_probs.ndim == 3 else log_probs.sum()
        return rows if reduction == "none" else rows.sum()
    return torch.nn.functional.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity
    )


def _margin_loss(
    function: LocalFunction,
    sample_dims: int,
    input: torch.Tensor,
    target: torch.Tensor,
    *rest: Any,
    **named: Any,
) -> torch.Tensor:
    """Torch's form without data gives the loss of one sample a dim; a target has `sample_dims`."""
    loss = function(input, target, *rest, **named)
    assert isinstance(loss, torch.Tensor)
    each = target.shape[: target.ndim - sample_dims]
    return loss.reshape(each) if loss.is_meta and loss.ndim else loss


def _view_as_complex(input: torch.Tensor) -> torch.Tensor:
    """Also of a shard whose pairs do not lie as numbers: how it lies is not the program's doing."""
    if input.ndim and input.stride(-1) != 1:  # as an expanded gradient; an error takes longer
        input = input.clone(memory_format=torch.contiguous_format)
    try:
        return torch.view_as_complex(input)
    except RuntimeError:
        return torch.view_as_complex(input.clone(memory_format=torch.contiguous_format))


# What runs on shards in place of torch's function. Torch references have Triton kernels.
_LOCAL: dict[str, LocalFunction] = {
    "_embedding_bag": _embedding_bag_parts,
    "_dirichlet_grad": _dirichlet_grad,
    "_standard_gamma_grad": _gamma_grad,
    "bucketize": search_ref.bucketize,
    "ctc_loss": _ctc_loss,
    "embedding_bag": _embedding_bag,
    "fft.ihfft": _ihfft,
    "multi_margin_loss": partial(_margin_loss, torch.nn.functional.multi_margin_loss, 0),
    "multilabel_margin_loss": partial(_margin_loss, torch.nn.functional.multilabel_margin_loss, 1),
    "native_channel_shuffle": torch.channel_shuffle,  # which has a gradient on the CPU, too
    "searchsorted": search_ref.searchsorted,
    "view_as_complex": _view_as_complex,
}


def read(text: str) -> Row:
    """The row that a line of `torch_table` describes."""
    found = _ROW.fullmatch(text)
    assert found is not None, f"cannot read the row {text!r}"
    name, parameters, outputs, rule = found.groups()
    leaf = name.split(".")[-1]
    declared = function(f"def {leaf}({parameters}): ...", leaf, f"row of {name}", {})
    home = torch.nn.functional if hasattr(torch.nn.functional, name) else torch
    run: LocalFunction = _LOCAL.get(name) or attrgetter(name)(home)
    names = outputs.split(", ") if outputs else []
    return Row(name, _typed(inspect.signature(declared), bool(names)), names, rule, run)


def _joined(block: str) -> list[str]:
    """The rows of a block; a long row goes on in indented lines."""
    return block.strip().replace("\n    ", " ").splitlines()


ROWS = {
    row.name: row
    for block in (
        torch_table.LINALG,
        torch_table.FFT,
        torch_table.SPECIAL,
        torch_table.OTHERS,
        torch_table.LAYERS,
        torch_table.LOSSES,
        torch_table.VECTORS,
    )
    for row in map(read, _joined(block))
}
