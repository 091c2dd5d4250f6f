"""Names of torch's and OneFlow's nn that are not here, each with what to use in its place."""

from __future__ import annotations

from collections.abc import Mapping

_QUANTIZED = (
    "quantized layers are not there; to compute with 8 bits use flow.quantize_fp8 and "
    "flow.scaled_matmul, and for half precision nn.Graph's config.enable_amp"
)
_LAZY = (
    "lazy layers have no parameters before their first call; make a layer's parameters with "
    "flow.nn.Parameter(flow.empty(...)) when the shape is known, or call the layer once"
)
_READERS = "read files with a loader of your own, and lay batches out with flow.tensor(data, ...)"

LAYERS: Mapping[str, str] = {
    "COCOReader": _READERS,
    "CoinFlip": "use flow.rand(n) < probability",
    "FakeQuantization": _QUANTIZED,
    "MinMaxObserver": _QUANTIZED,
    "MovingAverageMinMaxObserver": _QUANTIZED,
    "OFRecordReader": _READERS,
    "QatConv1d": _QUANTIZED,
    "QatConv2d": _QUANTIZED,
    "QatConv3d": _QUANTIZED,
    "Quantization": _QUANTIZED,
    "factory_kwargs": "pass device, dtype, placement and sbp to layers by name",
    "grad": "use flow.autograd.grad of the convolution's result",
    "intrinsic": _QUANTIZED,
    "UninitializedBuffer": _LAZY,
    "UninitializedParameter": _LAZY,
    "qat": _QUANTIZED,
    "quantizable": _QUANTIZED,
    "quantized": _QUANTIZED,
}

# Of `flow.nn.attention`.
ATTENTION: Mapping[str, str] = {
    "varlen": "call nn.functional.attention_varlen",
}

FUNCTIONS: Mapping[str, str] = {
    "deform_conv2d": (
        "sample the input with grid_sample at grids of your offsets, then call conv2d with a "
        "stride of the kernel's size"
    ),
    "scaled_grouped_mm": "call flow.scaled_matmul on the matrices of each group",
}
