"""The knowledge: one file per op family. Importing this package enters every op by name."""

from ..names import all_names
from . import (
    activation,
    arithmetic,
    arrange,
    attention,
    batch_norm,
    blend,
    cast,
    classloss,
    compare,
    conv,
    creation,
    dims,
    dropout,
    einsum,
    embedding,
    extremum,
    float8,
    gated,
    gather,
    getitem,
    im2col,
    index,
    inplace_arithmetic,
    join,
    layer_norm,
    like,
    linear_loss,
    loss,
    matmul,
    moment,
    moving,
    norm,
    order,
    packed_attention,
    pad,
    pointwise,
    pool,
    power,
    random_sources,
    ranges,
    reduce,
    rotary,
    scan,
    slicing,
    softmax,
    sorting,
    total,
    transfer,
    unary,
    vector_norm,
    view,
    where,
)

# Names that are only tensor methods, or that tensor methods and ops reach each other by.
NOT_PUBLIC = frozenset(
    """
    add_ assign_result backward batch_hermitian batch_norm_train bfloat16 bool box byte cast
    cdouble cfloat char check_meta_consistency contiguous copy_ cpu cuda data deep_copy describe
    detach div_ double expand_as fill_ float mul_ new_empty new_full new_ones new_tensor new_zeros
    sub_ global_to_global half int is_contiguous item local_to_global long mm_nt mm_tn numpy
    ones_like_whole register_hook reshape_as retain_grad reversed_dims rows_tn
    set_data set_grad set_requires_grad setitem setitem_ short sum_rows sum_to to to_bool
    to_consistent to_format to_index to_torch tolist type_as view view_as zero_ getitem
    """.split()
)
PUBLIC = sorted(name for name in all_names() if name not in NOT_PUBLIC)
