"""nn: modules with torch's names; the same module runs local, global and captured in a graph."""

from . import functional as functional, graph as graph, init as init, utils as utils
from .activation_layers import (
    GELU as GELU,
    ReLU as ReLU,
    Sigmoid as Sigmoid,
    SiLU as SiLU,
    Softmax as Softmax,
    Tanh as Tanh,
)
from .container import (
    ModuleDict as ModuleDict,
    ModuleList as ModuleList,
    ParameterList as ParameterList,
    Sequential as Sequential,
)
from .convolution import Conv2d as Conv2d
from .dropout_layers import Dropout as Dropout
from .graph import Graph as Graph
from .linear import (
    Embedding as Embedding,
    Flatten as Flatten,
    Identity as Identity,
    Linear as Linear,
)
from .loss_layers import (
    CrossEntropyLoss as CrossEntropyLoss,
    MSELoss as MSELoss,
    NLLLoss as NLLLoss,
)
from .module import Module as Module
from .normalization import LayerNorm as LayerNorm
from .parameter import Parameter as Parameter
from .pooling import AvgPool2d as AvgPool2d, MaxPool2d as MaxPool2d
