"""Functions whose arguments in `torch` are others than in torch.nn.functional (`flow.batch_norm`).

The table of names has the form of torch.nn.functional, which the package itself calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import torch

from ...errors import OnefoldTypeError, OnefoldValueError
from ..generated import function
from ..generator import Generator, default_generator
from ..names import Function, all_names, register_torch_form
from ..tensor import Tensor
from . import (
    batch_norm as batch_norms,
    dropout as dropouts,
    embedding as embeddings,
    functions_in_place,
    group_norm as group_norms,
    layer_norm as layer_norms,
    rrelu as rrelus,
)
from .torch_rows import FUNCTIONS

_REDUCTIONS = ("none", "mean", "sum")
_MODES = ("sum", "mean", "max")

# The losses, with torch's parameters. Its numbers of reductions and their names are both taken.
# Without one torch does not reduce: it declares Reduction::Mean, but reads that text as 0.
_LOSSES = """
binary_cross_entropy_with_logits(input, target, weight=None, pos_weight=None, reduction=0)
cosine_embedding_loss(input1, input2, target, margin=0.0, reduction=0)
ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction=0,
    zero_infinity=False)
hinge_embedding_loss(input, target, margin=1.0, reduction=0)
kl_div(input, target, reduction=0, *, log_target=False)
margin_ranking_loss(input1, input2, target, margin=0.0, reduction=0)
poisson_nll_loss(input, target, log_input, full, eps, reduction)
triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2, eps=1e-06, swap=False, reduction=0)
"""


def reduction_name(reduction: int | str) -> str:
    """The reduction that one of torch's numbers stands for; names are themselves."""
    if isinstance(reduction, str):
        return reduction
    if reduction not in range(len(_REDUCTIONS)):
        raise OnefoldValueError(
            f"reduction must be 0 (none), 1 (mean) or 2 (sum), or one of these names, but got "
            f"{reduction!r}"
        )
    return _REDUCTIONS[reduction]


def _loss(text: str) -> Function:
    """The function of a line of `_LOSSES`."""
    name = text.partition("(")[0]
    core = all_names()[name]
    known = inspect.signature(core, eval_str=True).parameters
    declared = inspect.signature(function(f"def {text}: ...", name, f"form of {name}", {}))
    given = list(declared.parameters)
    reduced = given.index("reduction")
    passed = [f"{each}={each}" for each in given]
    passed[reduced] = "reduction=reduction_name(reduction)"
    whole = f"def {text}:\n    return core({', '.join(passed)})\n"
    scope: dict[str, object] = {
        "__name__": __name__, "core": core, "reduction_name": reduction_name
    }  # fmt: skip
    made = function(whole, name, name, scope)
    made.__doc__ = core.__doc__
    types = {name: each.annotation for name, each in known.items()}
    types |= {"margin": float, "reduction": int | str}
    typed = [each.replace(annotation=types[each.name]) for each in declared.parameters.values()]
    vars(made)["__signature__"] = inspect.Signature(typed, return_annotation=Tensor)
    return made


for _text in _LOSSES.strip().replace("\n    ", " ").splitlines():
    register_torch_form(_loss(_text))


# Embeddings.


@register_torch_form
def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of a [rows, width] weight at [...] indices: [..., width].

    A negative `padding_idx` is none. The layouts and errors are those of
    `flow.nn.functional.embedding(input, weight)`, which takes its arguments in another order.
    """
    if weight.dtype in (torch.int32, torch.int64) and indices.dtype.is_floating_point:
        raise OnefoldTypeError(
            f"embedding: 'weight' is {weight.dtype} and 'indices' are {indices.dtype}: flow."
            "embedding(weight, indices) takes its arguments as torch.embedding does; with the "
            "indices first, call flow.nn.functional.embedding(input, weight)"
        )
    padding = None if padding_idx < 0 else padding_idx
    return embeddings.embedding(
        indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse
    )


@register_torch_form
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(the reduced rows of each bag, the bag of each index, the sizes, the rows of the maxima).

    `mode` is 0 (sum), 1 (mean) or 2 (max). The sizes count what is not padding, and without `max`
    they stand for the rows of maxima, too. Gradients flow through the first alone. Raises
    OnefoldValueError for `sparse`, which `flow.nn.functional.embedding_bag` does not take either.

    Example: `flow.embedding_bag(weight, indices, offsets)[0]` has a row for each of the offsets.
    """
    if mode not in range(len(_MODES)):
        raise OnefoldValueError(
            f"embedding_bag: mode must be 0 (sum), 1 (mean) or 2 (max), but got {mode!r}; "
            "flow.nn.functional.embedding_bag takes the names"
        )
    if sparse:
        raise OnefoldValueError("embedding_bag: sparse gradients are not there; use dense ones")
    y, bag, size, most = FUNCTIONS["_embedding_bag"](
        weight,
        indices,
        offsets,
        scale_grad_by_freq,
        mode,
        False,
        per_sample_weights,
        include_last_offset,
        padding_idx,
    )
    return y, bag, size, most


# Norms. Whether cuDNN is used makes no difference: there is one kernel.


@register_torch_form
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Normalize each channel by the batch in training, else by running statistics.

    As `flow.nn.functional.batch_norm`, which takes the statistics before the weight and the bias.
    """
    return batch_norms.batch_norm(
        input, running_mean, running_var, weight, bias, training, momentum, eps
    )


@register_torch_form
def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Normalize each channel of each sample by its own statistics, then scale and shift.

    As `flow.nn.functional.instance_norm`, which takes the statistics before the weight.
    """
    return group_norms.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


@register_torch_form
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """As `flow.nn.functional.group_norm`."""
    return group_norms.group_norm(input, num_groups, weight, bias, eps)


@register_torch_form
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """As `flow.nn.functional.layer_norm`."""
    return layer_norms.layer_norm(input, normalized_shape, weight, bias, eps)


# Dropout. `training` is the name of torch.nn.functional for `train`, and may be given, too.


@register_torch_form
def dropout(
    input: Tensor, p: float = 0.5, train: bool = True, *, training: bool | None = None
) -> Tensor:
    """Zero each element with probability p and scale the others by 1 / (1 - p), if `train`.

    As `flow.nn.functional.dropout`, without `inplace`.
    """
    return dropouts.dropout(input, p, train if training is None else training)


@register_torch_form
def alpha_dropout(
    input: Tensor, p: float = 0.5, train: bool = False, *, training: bool | None = None
) -> Tensor:
    """As `flow.nn.functional.alpha_dropout`, without `inplace`."""
    return dropouts.alpha_dropout(input, p, train if training is None else training)


@register_torch_form
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, train: bool = False, *, training: bool | None = None
) -> Tensor:
    """As `flow.nn.functional.feature_alpha_dropout`, without `inplace`."""
    return dropouts.feature_alpha_dropout(input, p, train if training is None else training)


# Activations.


def _check_generator(name: str, generator: Generator | None) -> None:
    """Raise OnefoldValueError for a generator other than the default one."""
    if generator is not None and generator is not default_generator:
        raise OnefoldValueError(
            f"{name} draws from the default generator only; leave generator out, and seed it with "
            "flow.manual_seed"
        )


@register_torch_form
def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """As `flow.nn.functional.rrelu`, without `inplace`.

    Raises OnefoldValueError for a generator other than the default one.
    """
    _check_generator("rrelu", generator)
    return rrelus.rrelu(input, lower, upper, training)


@register_torch_form
def rrelu_(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """`rrelu` in place. Raises OnefoldValueError for a generator other than the default one."""
    _check_generator("rrelu_", generator)
    return functions_in_place.rrelu_(input, lower, upper, training)
