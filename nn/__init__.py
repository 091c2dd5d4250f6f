"""nn: modules with torch's names; the same module runs local, global and captured in a graph."""

from importlib import import_module as _import_module

from ..engine.boundaries import (
    wrap_constructors as _wrap_constructors,
    wrap_methods as _wrap_methods,
)
from ..graph.unsupported import missing_attribute as _missing_attribute
from . import (
    common_types as common_types,
    functional as functional,
    graph as graph,
    init as init,
    parallel as parallel,
    utils as utils,
)
from .adaptive_softmax import AdaptiveLogSoftmaxWithLoss as AdaptiveLogSoftmaxWithLoss
from .container import (
    Container as Container,
    ModuleDict as ModuleDict,
    ModuleList as ModuleList,
    Sequential as Sequential,
)
from .convolution import (
    Conv1d as Conv1d,
    Conv2d as Conv2d,
    Conv3d as Conv3d,
    ConvTranspose1d as ConvTranspose1d,
    ConvTranspose2d as ConvTranspose2d,
    ConvTranspose3d as ConvTranspose3d,
)
from .cross_map_lrn import CrossMapLRN2d as CrossMapLRN2d
from .data_parallel import DataParallel as DataParallel
from .fused_mlp import FusedMLP as FusedMLP
from .graph import Graph as Graph
from .lazy_layers import (
    LazyBatchNorm1d as LazyBatchNorm1d,
    LazyBatchNorm2d as LazyBatchNorm2d,
    LazyBatchNorm3d as LazyBatchNorm3d,
    LazyConv1d as LazyConv1d,
    LazyConv2d as LazyConv2d,
    LazyConv3d as LazyConv3d,
    LazyConvTranspose1d as LazyConvTranspose1d,
    LazyConvTranspose2d as LazyConvTranspose2d,
    LazyConvTranspose3d as LazyConvTranspose3d,
    LazyInstanceNorm1d as LazyInstanceNorm1d,
    LazyInstanceNorm2d as LazyInstanceNorm2d,
    LazyInstanceNorm3d as LazyInstanceNorm3d,
    LazyLinear as LazyLinear,
)
from .learned_layers import (
    Bilinear as Bilinear,
    EmbeddingBag as EmbeddingBag,
    PReLU as PReLU,
)
from .linear import (
    Embedding as Embedding,
    Flatten as Flatten,
    Identity as Identity,
    Linear as Linear,
)
from .linear_cross_entropy_loss import (
    LinearCrossEntropyLoss as LinearCrossEntropyLoss,
    LinearCrossEntropyOptions as LinearCrossEntropyOptions,
)
from .loss_layers import (
    CrossEntropyLoss as CrossEntropyLoss,
    MSELoss as MSELoss,
    NLLLoss as NLLLoss,
    NLLLoss2d as NLLLoss2d,
)
from .module import Module as Module
from .multihead_attention import MultiheadAttention as MultiheadAttention
from .normalization import (
    GroupNorm as GroupNorm,
    LayerNorm as LayerNorm,
    RMSNorm as RMSNorm,
)
from .oneflow_layers import (
    CombinedMarginLoss as CombinedMarginLoss,
    FusedBatchNorm1d as FusedBatchNorm1d,
    FusedBatchNorm2d as FusedBatchNorm2d,
    FusedBatchNorm3d as FusedBatchNorm3d,
    QuickGELU as QuickGELU,
    RMSLayerNorm as RMSLayerNorm,
    SquareReLU as SquareReLU,
)
from .parameter import Buffer as Buffer, Parameter as Parameter
from .parameter_containers import ParameterDict as ParameterDict, ParameterList as ParameterList
from .pooling import AvgPool2d as AvgPool2d, MaxPool2d as MaxPool2d
from .recurrent import GRU as GRU, LSTM as LSTM, RNN as RNN
from .recurrent_base import RNNBase as RNNBase
from .recurrent_cells import (
    GRUCell as GRUCell,
    LSTMCell as LSTMCell,
    RNNCell as RNNCell,
    RNNCellBase as RNNCellBase,
)
from .running_norm import (
    BatchNorm1d as BatchNorm1d,
    BatchNorm2d as BatchNorm2d,
    BatchNorm3d as BatchNorm3d,
    InstanceNorm1d as InstanceNorm1d,
    InstanceNorm2d as InstanceNorm2d,
    InstanceNorm3d as InstanceNorm3d,
    SyncBatchNorm as SyncBatchNorm,
)
from .table_layers import (
    CELU as CELU,
    ELU as ELU,
    GELU as GELU,
    GLU as GLU,
    SELU as SELU,
    AdaptiveAvgPool1d as AdaptiveAvgPool1d,
    AdaptiveAvgPool2d as AdaptiveAvgPool2d,
    AdaptiveAvgPool3d as AdaptiveAvgPool3d,
    AdaptiveMaxPool1d as AdaptiveMaxPool1d,
    AdaptiveMaxPool2d as AdaptiveMaxPool2d,
    AdaptiveMaxPool3d as AdaptiveMaxPool3d,
    AlphaDropout as AlphaDropout,
    AvgPool1d as AvgPool1d,
    AvgPool3d as AvgPool3d,
    BCELoss as BCELoss,
    BCEWithLogitsLoss as BCEWithLogitsLoss,
    ChannelShuffle as ChannelShuffle,
    CircularPad1d as CircularPad1d,
    CircularPad2d as CircularPad2d,
    CircularPad3d as CircularPad3d,
    ConstantPad1d as ConstantPad1d,
    ConstantPad2d as ConstantPad2d,
    ConstantPad3d as ConstantPad3d,
    CosineEmbeddingLoss as CosineEmbeddingLoss,
    CosineSimilarity as CosineSimilarity,
    CTCLoss as CTCLoss,
    Dropout as Dropout,
    Dropout1d as Dropout1d,
    Dropout2d as Dropout2d,
    Dropout3d as Dropout3d,
    FeatureAlphaDropout as FeatureAlphaDropout,
    Fold as Fold,
    FractionalMaxPool2d as FractionalMaxPool2d,
    FractionalMaxPool3d as FractionalMaxPool3d,
    GaussianNLLLoss as GaussianNLLLoss,
    Hardshrink as Hardshrink,
    Hardsigmoid as Hardsigmoid,
    Hardswish as Hardswish,
    Hardtanh as Hardtanh,
    HingeEmbeddingLoss as HingeEmbeddingLoss,
    HuberLoss as HuberLoss,
    KLDivLoss as KLDivLoss,
    L1Loss as L1Loss,
    LeakyReLU as LeakyReLU,
    LocalResponseNorm as LocalResponseNorm,
    LogSigmoid as LogSigmoid,
    LogSoftmax as LogSoftmax,
    LPPool1d as LPPool1d,
    LPPool2d as LPPool2d,
    LPPool3d as LPPool3d,
    MarginRankingLoss as MarginRankingLoss,
    MaxPool1d as MaxPool1d,
    MaxPool3d as MaxPool3d,
    MaxUnpool1d as MaxUnpool1d,
    MaxUnpool2d as MaxUnpool2d,
    MaxUnpool3d as MaxUnpool3d,
    Mish as Mish,
    MultiLabelMarginLoss as MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss,
    MultiMarginLoss as MultiMarginLoss,
    PairwiseDistance as PairwiseDistance,
    PixelShuffle as PixelShuffle,
    PixelUnshuffle as PixelUnshuffle,
    PoissonNLLLoss as PoissonNLLLoss,
    ReflectionPad1d as ReflectionPad1d,
    ReflectionPad2d as ReflectionPad2d,
    ReflectionPad3d as ReflectionPad3d,
    ReLU as ReLU,
    ReLU6 as ReLU6,
    ReplicationPad1d as ReplicationPad1d,
    ReplicationPad2d as ReplicationPad2d,
    ReplicationPad3d as ReplicationPad3d,
    RReLU as RReLU,
    Sigmoid as Sigmoid,
    SiLU as SiLU,
    SmoothL1Loss as SmoothL1Loss,
    SoftMarginLoss as SoftMarginLoss,
    Softmax as Softmax,
    Softmax2d as Softmax2d,
    Softmin as Softmin,
    Softplus as Softplus,
    Softshrink as Softshrink,
    Softsign as Softsign,
    Tanh as Tanh,
    Tanhshrink as Tanhshrink,
    Threshold as Threshold,
    TripletMarginLoss as TripletMarginLoss,
    TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss,
    Unflatten as Unflatten,
    Unfold as Unfold,
    Upsample as Upsample,
    UpsamplingBilinear2d as UpsamplingBilinear2d,
    UpsamplingNearest2d as UpsamplingNearest2d,
    ZeroPad1d as ZeroPad1d,
    ZeroPad2d as ZeroPad2d,
    ZeroPad3d as ZeroPad3d,
)
from .transformer import (
    Transformer as Transformer,
    TransformerDecoder as TransformerDecoder,
    TransformerEncoder as TransformerEncoder,
)
from .transformer_layers import (
    TransformerDecoderLayer as TransformerDecoderLayer,
    TransformerEncoderLayer as TransformerEncoderLayer,
)
from .unsupported_names import LAYERS as _UNSUPPORTED

_wrap_constructors(list(globals().values()), Module)
for _kind in (Module, Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict):
    _wrap_methods(_kind)


def __getattr__(name: str) -> object:
    if name in ("attention", "modules"):  # paths of compat/import_paths.py
        return _import_module(f"{__name__}.{name}")
    raise _missing_attribute(_UNSUPPORTED, "onefold.nn", name)
