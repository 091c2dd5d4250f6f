"""How a model is laid over devices from outside: tables of layouts by the names of parameters."""

from .fully_sharded import fully_shard as fully_shard
from .layout_plan import (
    COLUMN as COLUMN,
    REPLICATE as REPLICATE,
    ROW as ROW,
    TRANSFORMER as TRANSFORMER,
    VOCAB as VOCAB,
    Plan as Plan,
    Rule as Rule,
    Style as Style,
)
from .mesh_tensors import DTensor as DTensor
from .tensor_parallel import tensor_parallel as tensor_parallel
