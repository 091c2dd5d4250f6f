"""The functions behind the layers.

Written by `make stubs`; do not edit.
"""

from ..engine.ops.functions import adaptive_avg_pool1d as adaptive_avg_pool1d
from ..engine.ops.functions import adaptive_avg_pool2d as adaptive_avg_pool2d
from ..engine.ops.functions import alpha_dropout as alpha_dropout
from ..engine.ops.functions import attention_varlen as attention_varlen
from ..engine.ops.functions import avg_pool1d as avg_pool1d
from ..engine.ops.functions import avg_pool2d as avg_pool2d
from ..engine.ops.functions import batch_norm as batch_norm
from ..engine.ops.functions import binary_cross_entropy as binary_cross_entropy
from ..engine.ops.functions import (
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
)
from ..engine.ops.functions import celu as celu
from ..engine.ops.functions import conv1d as conv1d
from ..engine.ops.functions import conv2d as conv2d
from ..engine.ops.functions import conv3d as conv3d
from ..engine.ops.functions import conv_transpose1d as conv_transpose1d
from ..engine.ops.functions import conv_transpose2d as conv_transpose2d
from ..engine.ops.functions import cosine_similarity as cosine_similarity
from ..engine.ops.functions import cross_entropy as cross_entropy
from ..engine.ops.functions import dropout as dropout
from ..engine.ops.functions import dropout1d as dropout1d
from ..engine.ops.functions import dropout2d as dropout2d
from ..engine.ops.functions import dropout3d as dropout3d
from ..engine.ops.functions import elu as elu
from ..engine.ops.functions import embedding as embedding
from ..engine.ops.functions import geglu as geglu
from ..engine.ops.functions import gelu as gelu
from ..engine.ops.functions import group_norm as group_norm
from ..engine.ops.functions import hardshrink as hardshrink
from ..engine.ops.functions import hardsigmoid as hardsigmoid
from ..engine.ops.functions import hardswish as hardswish
from ..engine.ops.functions import hardtanh as hardtanh
from ..engine.ops.functions import huber_loss as huber_loss
from ..engine.ops.functions import im2col as unfold
from ..engine.ops.functions import instance_norm as instance_norm
from ..engine.ops.functions import kl_div as kl_div
from ..engine.ops.functions import l1_loss as l1_loss
from ..engine.ops.functions import layer_norm as layer_norm
from ..engine.ops.functions import leaky_relu as leaky_relu
from ..engine.ops.functions import linear as linear
from ..engine.ops.functions import linear_cross_entropy as linear_cross_entropy
from ..engine.ops.functions import log_softmax as log_softmax
from ..engine.ops.functions import logsigmoid as logsigmoid
from ..engine.ops.functions import max_pool1d as max_pool1d
from ..engine.ops.functions import max_pool2d as max_pool2d
from ..engine.ops.functions import max_pool3d as max_pool3d
from ..engine.ops.functions import mish as mish
from ..engine.ops.functions import mse_loss as mse_loss
from ..engine.ops.functions import nll_loss as nll_loss
from ..engine.ops.functions import normalize as normalize
from ..engine.ops.functions import one_hot as one_hot
from ..engine.ops.functions import pad as pad
from ..engine.ops.functions import pixel_shuffle as pixel_shuffle
from ..engine.ops.functions import pixel_unshuffle as pixel_unshuffle
from ..engine.ops.functions import relu as relu
from ..engine.ops.functions import relu6 as relu6
from ..engine.ops.functions import rms_norm as rms_norm
from ..engine.ops.functions import rotary as rotary
from ..engine.ops.functions import scaled_dot_product_attention as scaled_dot_product_attention
from ..engine.ops.functions import selu as selu
from ..engine.ops.functions import sigmoid as sigmoid
from ..engine.ops.functions import silu as silu
from ..engine.ops.functions import smooth_l1_loss as smooth_l1_loss
from ..engine.ops.functions import softmax as softmax
from ..engine.ops.functions import softmin as softmin
from ..engine.ops.functions import softplus as softplus
from ..engine.ops.functions import softshrink as softshrink
from ..engine.ops.functions import softsign as softsign
from ..engine.ops.functions import swiglu as swiglu
from ..engine.ops.functions import tanh as tanh
from ..engine.ops.functions import tanhshrink as tanhshrink
from ..engine.ops.functions import threshold as threshold

FUNCTIONS: list[str]
RENAMED: dict[str, str]
__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "alpha_dropout",
    "attention_varlen",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "embedding",
    "geglu",
    "gelu",
    "group_norm",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "huber_loss",
    "instance_norm",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "linear_cross_entropy",
    "log_softmax",
    "logsigmoid",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "mish",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pixel_shuffle",
    "pixel_unshuffle",
    "relu",
    "relu6",
    "rms_norm",
    "rotary",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "swiglu",
    "tanh",
    "tanhshrink",
    "threshold",
    "unfold",
]
