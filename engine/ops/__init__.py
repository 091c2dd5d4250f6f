"""The ops, one file per family. Importing this package registers every op by name."""

from importlib import import_module
from pkgutil import iter_modules

import torch

from ..methods import NOT_IN_PLACE
from ..names import all_names, names, register_name
from ..tensor import Tensor, add_inplace_method, add_method

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

# Other names that torch has for a function.
ALIASES = """
absolute=abs arccos=acos arccosh=acosh arcsin=asin arcsinh=asinh arctan=atan arctan2=atan2
arctanh=atanh broadcast_to=expand clip=clamp concat=cat concatenate=cat divide=div
fix=trunc greater=gt greater_equal=ge less=lt less_equal=le log_sigmoid=logsigmoid moveaxis=movedim
multiply=mul negative=neg not_equal=ne row_stack=vstack subtract=sub
swapaxes=transpose swapdims=transpose
linalg.matmul=matmul linalg.matrix_exp=matrix_exp linalg.vector_norm=vector_norm
special.digamma=digamma special.erf=erf special.erfc=erfc special.erfinv=erfinv special.exp2=exp2
special.expit=sigmoid special.expm1=expm1 special.gammainc=igamma special.gammaincc=igammac
special.gammaln=lgamma special.i0=i0 special.log1p=log1p special.log_softmax=log_softmax
special.logit=logit special.logsumexp=logsumexp special.multigammaln=mvlgamma special.psi=digamma
special.round=round special.sinc=sinc special.softmax=softmax special.xlogy=xlogy
""".split()
for _alias, _, _name in (pair.partition("=") for pair in ALIASES):
    register_name(_alias, getattr(names, _name))

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
    ones_like_whole register_hook register_post_accumulate_grad_hook reshape_as retain_grad
    reversed_dims rows_tn
    set_data set_grad set_requires_grad setitem setitem_ short sum_rows sum_to to to_bool
    to_consistent to_format to_index to_torch tolist type_as view view_as zero_ getitem
    """.split()
)
# Names with a dot are in a module of their own, such as `onefold.linalg`.
PUBLIC = sorted(name for name in all_names() if name not in NOT_PUBLIC and "." not in name)
