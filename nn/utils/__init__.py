"""Utilities for modules and parameters: clipping, parametrizations, pruning, packing, fusion."""

from ...engine.boundaries import wrap_functions as _wrap_functions
from . import (
    clip_grad as clip_grad,
    convert_parameters as convert_parameters,
    fusion as fusion,
    memory_format as memory_format,
    module_init as init,
    parameters_grouping as parameters_grouping,
    parametrizations as parametrizations,
    parametrize as parametrize,
    prune as prune,
    rnn as rnn,
    stateless as stateless,
)
from .clip_grad import (
    clip_grad_norm as clip_grad_norm,
    clip_grad_norm_ as clip_grad_norm_,
    clip_grad_value_ as clip_grad_value_,
    clip_grads_with_norm_ as clip_grads_with_norm_,
    get_total_norm as get_total_norm,
)
from .convert_parameters import (
    parameters_to_vector as parameters_to_vector,
    vector_to_parameters as vector_to_parameters,
)
from .fusion import (
    fuse_conv_bn_eval as fuse_conv_bn_eval,
    fuse_conv_bn_weights as fuse_conv_bn_weights,
    fuse_linear_bn_eval as fuse_linear_bn_eval,
    fuse_linear_bn_weights as fuse_linear_bn_weights,
)
from .memory_format import (
    convert_conv2d_weight_memory_format as convert_conv2d_weight_memory_format,
    convert_conv3d_weight_memory_format as convert_conv3d_weight_memory_format,
)
from .module_init import skip_init as skip_init
from .spectral_norm import (
    remove_spectral_norm as remove_spectral_norm,
    spectral_norm as spectral_norm,
)
from .weight_norm import remove_weight_norm as remove_weight_norm, weight_norm as weight_norm

for _module in (
    clip_grad, convert_parameters, fusion, memory_format, init, parameters_grouping,
    parametrizations, parametrize, prune, rnn, stateless,
):  # fmt: skip
    _wrap_functions(vars(_module))
_wrap_functions(globals())
