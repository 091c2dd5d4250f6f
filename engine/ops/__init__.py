"""The ops, one file per family. Importing this package registers every op by name."""

from importlib import import_module
from pkgutil import iter_modules

import torch

from ..methods import NOT_IN_PLACE
from ..names import all_names
from ..tensor import Tensor, add_inplace_method, add_method

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

# What is a method in torch is one here.
for _name in all_names():
    if callable(getattr(torch.Tensor, _name, None)) and _name not in vars(Tensor):
        add_method(_name)
    _in_place = f"{_name}_"
    if (
        hasattr(torch.Tensor, _in_place)
        and _in_place not in vars(Tensor)
        and _name not in NOT_IN_PLACE
    ):
        add_inplace_method(_name)

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
