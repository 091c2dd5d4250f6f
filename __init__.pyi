"""Onefold trains neural networks on many devices from a program written for one.

Written by `make stubs`; do not edit.
"""

import builtins
from typing import Any

from torch import Size as Size
from torch import device as device
from torch import dtype as dtype
from torch import finfo as finfo
from torch import get_default_dtype as get_default_dtype
from torch import iinfo as iinfo
from torch import set_default_dtype as set_default_dtype

from . import errors as errors
from . import nn as nn
from . import optim as optim
from . import profiler as profiler
from . import testing as testing
from . import utils as utils
from .engine import autograd_api as autograd
from .engine import checkpoint as checkpoint
from .engine import env_api as env
from .engine import sbp as sbp
from .engine.dispatch_counters import FallbackWarning as FallbackWarning
from .engine.generator import Generator as Generator
from .engine.generator import get_rng_state as get_rng_state
from .engine.generator import initial_seed as initial_seed
from .engine.generator import manual_seed as manual_seed
from .engine.generator import seed as seed
from .engine.generator import set_rng_state as set_rng_state
from .engine.grad_mode import enable_grad as enable_grad
from .engine.grad_mode import inference_mode as inference_mode
from .engine.grad_mode import is_grad_enabled as is_grad_enabled
from .engine.grad_mode import no_grad as no_grad
from .engine.grad_mode import set_grad_enabled as set_grad_enabled
from .engine.ops.functions import abs as abs
from .engine.ops.functions import absolute as absolute
from .engine.ops.functions import acos as acos
from .engine.ops.functions import acosh as acosh
from .engine.ops.functions import adaptive_avg_pool1d as adaptive_avg_pool1d
from .engine.ops.functions import adaptive_avg_pool2d as adaptive_avg_pool2d
from .engine.ops.functions import add as add
from .engine.ops.functions import addcdiv as addcdiv
from .engine.ops.functions import addcmul as addcmul
from .engine.ops.functions import addmm as addmm
from .engine.ops.functions import addmv as addmv
from .engine.ops.functions import adjoint as adjoint
from .engine.ops.functions import all as all
from .engine.ops.functions import allclose as allclose
from .engine.ops.functions import alpha_dropout as alpha_dropout
from .engine.ops.functions import amax as amax
from .engine.ops.functions import amin as amin
from .engine.ops.functions import aminmax as aminmax
from .engine.ops.functions import angle as angle
from .engine.ops.functions import any as any
from .engine.ops.functions import arange as arange
from .engine.ops.functions import arccos as arccos
from .engine.ops.functions import arccosh as arccosh
from .engine.ops.functions import arcsin as arcsin
from .engine.ops.functions import arcsinh as arcsinh
from .engine.ops.functions import arctan as arctan
from .engine.ops.functions import arctan2 as arctan2
from .engine.ops.functions import arctanh as arctanh
from .engine.ops.functions import argmax as argmax
from .engine.ops.functions import argmin as argmin
from .engine.ops.functions import argsort as argsort
from .engine.ops.functions import argwhere as argwhere
from .engine.ops.functions import asin as asin
from .engine.ops.functions import asinh as asinh
from .engine.ops.functions import atan as atan
from .engine.ops.functions import atan2 as atan2
from .engine.ops.functions import atanh as atanh
from .engine.ops.functions import atleast_1d as atleast_1d
from .engine.ops.functions import atleast_2d as atleast_2d
from .engine.ops.functions import atleast_3d as atleast_3d
from .engine.ops.functions import attention_varlen as attention_varlen
from .engine.ops.functions import avg_pool1d as avg_pool1d
from .engine.ops.functions import avg_pool2d as avg_pool2d
from .engine.ops.functions import baddbmm as baddbmm
from .engine.ops.functions import batch_norm as batch_norm
from .engine.ops.functions import binary_cross_entropy as binary_cross_entropy
from .engine.ops.functions import (
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
)
from .engine.ops.functions import bitwise_and as bitwise_and
from .engine.ops.functions import bitwise_left_shift as bitwise_left_shift
from .engine.ops.functions import bitwise_not as bitwise_not
from .engine.ops.functions import bitwise_or as bitwise_or
from .engine.ops.functions import bitwise_right_shift as bitwise_right_shift
from .engine.ops.functions import bitwise_xor as bitwise_xor
from .engine.ops.functions import bmm as bmm
from .engine.ops.functions import broadcast_tensors as broadcast_tensors
from .engine.ops.functions import broadcast_to as broadcast_to
from .engine.ops.functions import cat as cat
from .engine.ops.functions import ceil as ceil
from .engine.ops.functions import celu as celu
from .engine.ops.functions import chunk as chunk
from .engine.ops.functions import clamp as clamp
from .engine.ops.functions import clamp_max as clamp_max
from .engine.ops.functions import clamp_min as clamp_min
from .engine.ops.functions import clip as clip
from .engine.ops.functions import clone as clone
from .engine.ops.functions import column_stack as column_stack
from .engine.ops.functions import concat as concat
from .engine.ops.functions import concatenate as concatenate
from .engine.ops.functions import conj as conj
from .engine.ops.functions import conj_physical as conj_physical
from .engine.ops.functions import conv1d as conv1d
from .engine.ops.functions import conv2d as conv2d
from .engine.ops.functions import conv3d as conv3d
from .engine.ops.functions import conv_transpose1d as conv_transpose1d
from .engine.ops.functions import conv_transpose2d as conv_transpose2d
from .engine.ops.functions import copysign as copysign
from .engine.ops.functions import cos as cos
from .engine.ops.functions import cosh as cosh
from .engine.ops.functions import cosine_similarity as cosine_similarity
from .engine.ops.functions import count_nonzero as count_nonzero
from .engine.ops.functions import cross_entropy as cross_entropy
from .engine.ops.functions import cumprod as cumprod
from .engine.ops.functions import cumsum as cumsum
from .engine.ops.functions import deg2rad as deg2rad
from .engine.ops.functions import detach_ as detach_
from .engine.ops.functions import diag as diag
from .engine.ops.functions import diag_embed as diag_embed
from .engine.ops.functions import diagonal as diagonal
from .engine.ops.functions import digamma as digamma
from .engine.ops.functions import div as div
from .engine.ops.functions import divide as divide
from .engine.ops.functions import dot as dot
from .engine.ops.functions import dropout as dropout
from .engine.ops.functions import dropout1d as dropout1d
from .engine.ops.functions import dropout2d as dropout2d
from .engine.ops.functions import dropout3d as dropout3d
from .engine.ops.functions import dstack as dstack
from .engine.ops.functions import einsum as einsum
from .engine.ops.functions import elu as elu
from .engine.ops.functions import embedding as embedding
from .engine.ops.functions import empty as empty
from .engine.ops.functions import empty_like as empty_like
from .engine.ops.functions import eq as eq
from .engine.ops.functions import equal as equal
from .engine.ops.functions import erf as erf
from .engine.ops.functions import erfc as erfc
from .engine.ops.functions import erfinv as erfinv
from .engine.ops.functions import exp as exp
from .engine.ops.functions import exp2 as exp2
from .engine.ops.functions import expand as expand
from .engine.ops.functions import expm1 as expm1
from .engine.ops.functions import eye as eye
from .engine.ops.functions import fix as fix
from .engine.ops.functions import flatten as flatten
from .engine.ops.functions import flip as flip
from .engine.ops.functions import fliplr as fliplr
from .engine.ops.functions import flipud as flipud
from .engine.ops.functions import float_power as float_power
from .engine.ops.functions import floor as floor
from .engine.ops.functions import floor_divide as floor_divide
from .engine.ops.functions import fmax as fmax
from .engine.ops.functions import fmin as fmin
from .engine.ops.functions import fmod as fmod
from .engine.ops.functions import frac as frac
from .engine.ops.functions import full as full
from .engine.ops.functions import full_like as full_like
from .engine.ops.functions import gather as gather
from .engine.ops.functions import ge as ge
from .engine.ops.functions import geglu as geglu
from .engine.ops.functions import gelu as gelu
from .engine.ops.functions import greater as greater
from .engine.ops.functions import greater_equal as greater_equal
from .engine.ops.functions import group_norm as group_norm
from .engine.ops.functions import gt as gt
from .engine.ops.functions import hann_window as hann_window
from .engine.ops.functions import hardshrink as hardshrink
from .engine.ops.functions import hardsigmoid as hardsigmoid
from .engine.ops.functions import hardswish as hardswish
from .engine.ops.functions import hardtanh as hardtanh
from .engine.ops.functions import heaviside as heaviside
from .engine.ops.functions import hermitian as hermitian
from .engine.ops.functions import hsplit as hsplit
from .engine.ops.functions import hstack as hstack
from .engine.ops.functions import huber_loss as huber_loss
from .engine.ops.functions import hypot as hypot
from .engine.ops.functions import im2col as im2col
from .engine.ops.functions import imag as imag
from .engine.ops.functions import index_add as index_add
from .engine.ops.functions import index_copy as index_copy
from .engine.ops.functions import index_fill as index_fill
from .engine.ops.functions import index_put as index_put
from .engine.ops.functions import index_select as index_select
from .engine.ops.functions import inner as inner
from .engine.ops.functions import instance_norm as instance_norm
from .engine.ops.functions import isclose as isclose
from .engine.ops.functions import isfinite as isfinite
from .engine.ops.functions import isinf as isinf
from .engine.ops.functions import isnan as isnan
from .engine.ops.functions import isneginf as isneginf
from .engine.ops.functions import isposinf as isposinf
from .engine.ops.functions import kl_div as kl_div
from .engine.ops.functions import kthvalue as kthvalue
from .engine.ops.functions import l1_loss as l1_loss
from .engine.ops.functions import layer_norm as layer_norm
from .engine.ops.functions import le as le
from .engine.ops.functions import leaky_relu as leaky_relu
from .engine.ops.functions import lerp as lerp
from .engine.ops.functions import less as less
from .engine.ops.functions import less_equal as less_equal
from .engine.ops.functions import lgamma as lgamma
from .engine.ops.functions import linear as linear
from .engine.ops.functions import linear_cross_entropy as linear_cross_entropy
from .engine.ops.functions import linspace as linspace
from .engine.ops.functions import log as log
from .engine.ops.functions import log1p as log1p
from .engine.ops.functions import log2 as log2
from .engine.ops.functions import log10 as log10
from .engine.ops.functions import log_sigmoid as log_sigmoid
from .engine.ops.functions import log_softmax as log_softmax
from .engine.ops.functions import logaddexp as logaddexp
from .engine.ops.functions import logaddexp2 as logaddexp2
from .engine.ops.functions import logical_and as logical_and
from .engine.ops.functions import logical_not as logical_not
from .engine.ops.functions import logical_or as logical_or
from .engine.ops.functions import logical_xor as logical_xor
from .engine.ops.functions import logit as logit
from .engine.ops.functions import logsigmoid as logsigmoid
from .engine.ops.functions import logspace as logspace
from .engine.ops.functions import logsumexp as logsumexp
from .engine.ops.functions import lt as lt
from .engine.ops.functions import masked_fill as masked_fill
from .engine.ops.functions import masked_scatter as masked_scatter
from .engine.ops.functions import masked_select as masked_select
from .engine.ops.functions import matmul as matmul
from .engine.ops.functions import matrix_transpose as matrix_transpose
from .engine.ops.functions import max as max
from .engine.ops.functions import max_pool1d as max_pool1d
from .engine.ops.functions import max_pool2d as max_pool2d
from .engine.ops.functions import max_pool3d as max_pool3d
from .engine.ops.functions import maximum as maximum
from .engine.ops.functions import mean as mean
from .engine.ops.functions import median as median
from .engine.ops.functions import meshgrid as meshgrid
from .engine.ops.functions import min as min
from .engine.ops.functions import minimum as minimum
from .engine.ops.functions import mish as mish
from .engine.ops.functions import mm as mm
from .engine.ops.functions import moveaxis as moveaxis
from .engine.ops.functions import movedim as movedim
from .engine.ops.functions import mse_loss as mse_loss
from .engine.ops.functions import msort as msort
from .engine.ops.functions import mul as mul
from .engine.ops.functions import multiply as multiply
from .engine.ops.functions import mv as mv
from .engine.ops.functions import nan_to_num as nan_to_num
from .engine.ops.functions import nanmean as nanmean
from .engine.ops.functions import nanmedian as nanmedian
from .engine.ops.functions import nansum as nansum
from .engine.ops.functions import narrow as narrow
from .engine.ops.functions import ne as ne
from .engine.ops.functions import neg as neg
from .engine.ops.functions import negative as negative
from .engine.ops.functions import nll_loss as nll_loss
from .engine.ops.functions import nonzero as nonzero
from .engine.ops.functions import norm as norm
from .engine.ops.functions import normal as normal
from .engine.ops.functions import normalize as normalize
from .engine.ops.functions import not_equal as not_equal
from .engine.ops.functions import one_hot as one_hot
from .engine.ops.functions import ones as ones
from .engine.ops.functions import ones_like as ones_like
from .engine.ops.functions import outer as outer
from .engine.ops.functions import pad as pad
from .engine.ops.functions import permute as permute
from .engine.ops.functions import pixel_shuffle as pixel_shuffle
from .engine.ops.functions import pixel_unshuffle as pixel_unshuffle
from .engine.ops.functions import polygamma as polygamma
from .engine.ops.functions import positive as positive
from .engine.ops.functions import pow as pow
from .engine.ops.functions import prod as prod
from .engine.ops.functions import quantize_fp8 as quantize_fp8
from .engine.ops.functions import rad2deg as rad2deg
from .engine.ops.functions import rand as rand
from .engine.ops.functions import rand_like as rand_like
from .engine.ops.functions import randint as randint
from .engine.ops.functions import randint_like as randint_like
from .engine.ops.functions import randn as randn
from .engine.ops.functions import randn_like as randn_like
from .engine.ops.functions import randperm as randperm
from .engine.ops.functions import ravel as ravel
from .engine.ops.functions import real as real
from .engine.ops.functions import reciprocal as reciprocal
from .engine.ops.functions import relu as relu
from .engine.ops.functions import relu6 as relu6
from .engine.ops.functions import remainder as remainder
from .engine.ops.functions import repeat as repeat
from .engine.ops.functions import repeat_interleave as repeat_interleave
from .engine.ops.functions import reshape as reshape
from .engine.ops.functions import resolve_conj as resolve_conj
from .engine.ops.functions import rms_norm as rms_norm
from .engine.ops.functions import roll as roll
from .engine.ops.functions import rot90 as rot90
from .engine.ops.functions import rotary as rotary
from .engine.ops.functions import round as round
from .engine.ops.functions import row_stack as row_stack
from .engine.ops.functions import rsqrt as rsqrt
from .engine.ops.functions import rsub as rsub
from .engine.ops.functions import scaled_dot_product_attention as scaled_dot_product_attention
from .engine.ops.functions import scaled_matmul as scaled_matmul
from .engine.ops.functions import scatter as scatter
from .engine.ops.functions import scatter_add as scatter_add
from .engine.ops.functions import scatter_reduce as scatter_reduce
from .engine.ops.functions import select as select
from .engine.ops.functions import selu as selu
from .engine.ops.functions import sgn as sgn
from .engine.ops.functions import sigmoid as sigmoid
from .engine.ops.functions import sign as sign
from .engine.ops.functions import signbit as signbit
from .engine.ops.functions import silu as silu
from .engine.ops.functions import sin as sin
from .engine.ops.functions import sinc as sinc
from .engine.ops.functions import sinh as sinh
from .engine.ops.functions import smooth_l1_loss as smooth_l1_loss
from .engine.ops.functions import softmax as softmax
from .engine.ops.functions import softmin as softmin
from .engine.ops.functions import softplus as softplus
from .engine.ops.functions import softshrink as softshrink
from .engine.ops.functions import softsign as softsign
from .engine.ops.functions import sort as sort
from .engine.ops.functions import split as split
from .engine.ops.functions import split_with_sizes as split_with_sizes
from .engine.ops.functions import sqrt as sqrt
from .engine.ops.functions import square as square
from .engine.ops.functions import squeeze as squeeze
from .engine.ops.functions import stack as stack
from .engine.ops.functions import std as std
from .engine.ops.functions import std_mean as std_mean
from .engine.ops.functions import sub as sub
from .engine.ops.functions import subtract as subtract
from .engine.ops.functions import sum as sum
from .engine.ops.functions import swapaxes as swapaxes
from .engine.ops.functions import swapdims as swapdims
from .engine.ops.functions import swiglu as swiglu
from .engine.ops.functions import t as t
from .engine.ops.functions import take as take
from .engine.ops.functions import take_along_dim as take_along_dim
from .engine.ops.functions import tan as tan
from .engine.ops.functions import tanh as tanh
from .engine.ops.functions import tanhshrink as tanhshrink
from .engine.ops.functions import tensor as tensor
from .engine.ops.functions import tensor_split as tensor_split
from .engine.ops.functions import tensordot as tensordot
from .engine.ops.functions import threshold as threshold
from .engine.ops.functions import tile as tile
from .engine.ops.functions import to_global as to_global
from .engine.ops.functions import to_local as to_local
from .engine.ops.functions import topk as topk
from .engine.ops.functions import transpose as transpose
from .engine.ops.functions import tril as tril
from .engine.ops.functions import tril_indices as tril_indices
from .engine.ops.functions import triu as triu
from .engine.ops.functions import triu_indices as triu_indices
from .engine.ops.functions import true_divide as true_divide
from .engine.ops.functions import trunc as trunc
from .engine.ops.functions import unbind as unbind
from .engine.ops.functions import unflatten as unflatten
from .engine.ops.functions import unfold as unfold
from .engine.ops.functions import unique as unique
from .engine.ops.functions import unsqueeze as unsqueeze
from .engine.ops.functions import var as var
from .engine.ops.functions import var_mean as var_mean
from .engine.ops.functions import vdot as vdot
from .engine.ops.functions import vector_norm as vector_norm
from .engine.ops.functions import vsplit as vsplit
from .engine.ops.functions import vstack as vstack
from .engine.ops.functions import where as where
from .engine.ops.functions import xlogy as xlogy
from .engine.ops.functions import zeros as zeros
from .engine.ops.functions import zeros_like as zeros_like
from .engine.placement import Placement as placement
from .engine.tensor import Tensor as Tensor
from .engine.values import from_dlpack as from_dlpack
from .engine.values import from_numpy as from_numpy
from .engine.values import from_torch as from_torch
from .engine.values import to_dlpack as to_dlpack
from .errors import OnefoldError as OnefoldError
from .graph.stages.compile_stages import PipelineWarning as PipelineWarning
from .optim import grad_scaler as amp

bfloat16: dtype
bool: dtype
cdouble: dtype
cfloat: dtype
complex128: dtype
complex64: dtype
default_generator: Generator
double: dtype
float: dtype
float16: dtype
float32: dtype
float64: dtype
half: dtype
int: dtype
int16: dtype
int32: dtype
int64: dtype
int8: dtype

def is_tensor(value: Any) -> builtins.bool: ...

long: dtype
short: dtype
uint8: dtype
__version__: str
__all__ = [
    "FallbackWarning",
    "Generator",
    "OnefoldError",
    "PipelineWarning",
    "Size",
    "Tensor",
    "abs",
    "absolute",
    "acos",
    "acosh",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "add",
    "addcdiv",
    "addcmul",
    "addmm",
    "addmv",
    "adjoint",
    "all",
    "allclose",
    "alpha_dropout",
    "amax",
    "amin",
    "aminmax",
    "amp",
    "angle",
    "any",
    "arange",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "argmax",
    "argmin",
    "argsort",
    "argwhere",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "attention_varlen",
    "autograd",
    "avg_pool1d",
    "avg_pool2d",
    "baddbmm",
    "batch_norm",
    "bfloat16",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "bmm",
    "bool",
    "broadcast_tensors",
    "broadcast_to",
    "cat",
    "cdouble",
    "ceil",
    "celu",
    "cfloat",
    "checkpoint",
    "chunk",
    "clamp",
    "clamp_max",
    "clamp_min",
    "clip",
    "clone",
    "column_stack",
    "complex128",
    "complex64",
    "concat",
    "concatenate",
    "conj",
    "conj_physical",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "copysign",
    "cos",
    "cosh",
    "cosine_similarity",
    "count_nonzero",
    "cross_entropy",
    "cumprod",
    "cumsum",
    "default_generator",
    "deg2rad",
    "detach_",
    "device",
    "diag",
    "diag_embed",
    "diagonal",
    "digamma",
    "div",
    "divide",
    "dot",
    "double",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "dstack",
    "dtype",
    "einsum",
    "elu",
    "embedding",
    "empty",
    "empty_like",
    "enable_grad",
    "env",
    "eq",
    "equal",
    "erf",
    "erfc",
    "erfinv",
    "errors",
    "exp",
    "exp2",
    "expand",
    "expm1",
    "eye",
    "finfo",
    "fix",
    "flatten",
    "flip",
    "fliplr",
    "flipud",
    "float",
    "float16",
    "float32",
    "float64",
    "float_power",
    "floor",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "frac",
    "from_dlpack",
    "from_numpy",
    "from_torch",
    "full",
    "full_like",
    "gather",
    "ge",
    "geglu",
    "gelu",
    "get_default_dtype",
    "get_rng_state",
    "greater",
    "greater_equal",
    "group_norm",
    "gt",
    "half",
    "hann_window",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "heaviside",
    "hermitian",
    "hsplit",
    "hstack",
    "huber_loss",
    "hypot",
    "iinfo",
    "im2col",
    "imag",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_select",
    "inference_mode",
    "initial_seed",
    "inner",
    "instance_norm",
    "int",
    "int16",
    "int32",
    "int64",
    "int8",
    "is_grad_enabled",
    "is_tensor",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "kl_div",
    "kthvalue",
    "l1_loss",
    "layer_norm",
    "le",
    "leaky_relu",
    "lerp",
    "less",
    "less_equal",
    "lgamma",
    "linear",
    "linear_cross_entropy",
    "linspace",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_sigmoid",
    "log_softmax",
    "logaddexp",
    "logaddexp2",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logit",
    "logsigmoid",
    "logspace",
    "logsumexp",
    "long",
    "lt",
    "manual_seed",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "matmul",
    "matrix_transpose",
    "max",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "maximum",
    "mean",
    "median",
    "meshgrid",
    "min",
    "minimum",
    "mish",
    "mm",
    "moveaxis",
    "movedim",
    "mse_loss",
    "msort",
    "mul",
    "multiply",
    "mv",
    "nan_to_num",
    "nanmean",
    "nanmedian",
    "nansum",
    "narrow",
    "ne",
    "neg",
    "negative",
    "nll_loss",
    "nn",
    "no_grad",
    "nonzero",
    "norm",
    "normal",
    "normalize",
    "not_equal",
    "one_hot",
    "ones",
    "ones_like",
    "optim",
    "outer",
    "pad",
    "permute",
    "pixel_shuffle",
    "pixel_unshuffle",
    "placement",
    "polygamma",
    "positive",
    "pow",
    "prod",
    "profiler",
    "quantize_fp8",
    "rad2deg",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "ravel",
    "real",
    "reciprocal",
    "relu",
    "relu6",
    "remainder",
    "repeat",
    "repeat_interleave",
    "reshape",
    "resolve_conj",
    "rms_norm",
    "roll",
    "rot90",
    "rotary",
    "round",
    "row_stack",
    "rsqrt",
    "rsub",
    "sbp",
    "scaled_dot_product_attention",
    "scaled_matmul",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "seed",
    "select",
    "selu",
    "set_default_dtype",
    "set_grad_enabled",
    "set_rng_state",
    "sgn",
    "short",
    "sigmoid",
    "sign",
    "signbit",
    "silu",
    "sin",
    "sinc",
    "sinh",
    "smooth_l1_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "sort",
    "split",
    "split_with_sizes",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "std_mean",
    "sub",
    "subtract",
    "sum",
    "swapaxes",
    "swapdims",
    "swiglu",
    "t",
    "take",
    "take_along_dim",
    "tan",
    "tanh",
    "tanhshrink",
    "tensor",
    "tensor_split",
    "tensordot",
    "threshold",
    "tile",
    "to_dlpack",
    "to_global",
    "to_local",
    "topk",
    "transpose",
    "tril",
    "tril_indices",
    "triu",
    "triu_indices",
    "true_divide",
    "trunc",
    "uint8",
    "unbind",
    "unflatten",
    "unfold",
    "unique",
    "unsqueeze",
    "var",
    "var_mean",
    "vdot",
    "vector_norm",
    "vsplit",
    "vstack",
    "where",
    "xlogy",
    "zeros",
    "zeros_like",
]
