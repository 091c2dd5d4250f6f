"""The ops, one file per family. Importing this package registers every op by name."""

from importlib import import_module
from pkgutil import iter_modules

import torch

from ..names import all_names, find_name, names, register_name
from ..tensor import Tensor, add_inplace_method, add_method
from .unsupported_methods import UNSUPPORTED

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

# Other names that torch has for a function.
ALIASES = """
absolute=abs arccos=acos arccosh=acosh arcsin=asin arcsinh=asinh arctan=atan arctan2=atan2
arctanh=atanh broadcast_to=expand clip=clamp concat=cat concatenate=cat divide=div
fix=trunc ger=outer greater=gt greater_equal=ge less=lt less_equal=le log_sigmoid=logsigmoid
moveaxis=movedim multiply=mul negative=neg not_equal=ne row_stack=vstack subtract=sub
swapdims=transpose
linalg.matmul=matmul linalg.matrix_exp=matrix_exp linalg.matrix_power=matrix_power
linalg.vector_norm=vector_norm
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
    if callable(getattr(torch.Tensor, _name, None)) and not hasattr(Tensor, _name):
        add_method(_name)
    _in_place = f"{_name}_"
    if (
        hasattr(torch.Tensor, _in_place)
        and not hasattr(Tensor, _in_place)
        and find_name(_in_place) is None
    ):
        add_inplace_method(_name)
        # Of these torch has functions, and OneFlow of those.
        if hasattr(torch, _in_place) or _in_place in ("index_add_", "lerp_", "masked_fill_"):
            register_name(_in_place, vars(Tensor)[_in_place])

# Names that are only tensor methods, or that tensor methods and ops reach each other by.
NOT_PUBLIC = UNSUPPORTED | frozenset(
    """
    _dirichlet_grad _embedding_bag _standard_gamma_grad to_sparse to_sparse_coo
    add_ assign_result backward batch_hermitian batch_norm_train bernoulli_ bfloat16 bool box byte
    cauchy_ cdouble cfloat chalf char check_meta_consistency contiguous copy_ cpu cuda data
    data_ptr deep_copy describe differs double equals expand_as fill_diagonal_ float geometric_
    getitem give_to grouped_rows grouped_sums
    half init_tensor int is_contiguous is_pinned is_set_to is_shared item legacy_tensor log_normal_
    long mm_nt mm_tn mul_ new new_empty_strided new_full new_ones new_tensor numpy ones_like_whole
    pin_memory random_ record_stream reduce_tensor register_hook register_post_accumulate_grad_hook
    check_change reshape_as resize resize_ resize_as retain_grad retains_grad reversed_dims rows_tn
    set_ set_data set_result
    set_grad set_requires_grad setitem setitem_ shallow_copy share_memory_ short squeeze_ storage
    storage_offset stride sub_ sum_rows sum_to swapaxes_ swapdims_ t_ to to_bool to_consistent
    to_dense to_format to_index to_torch tolist transpose_ type type_as unsqueeze_ untyped_storage
    view_as
    """.split()
)
# Names with a dot are in a module of their own, such as `onefold.linalg`.
PUBLIC = sorted(name for name in all_names() if name not in NOT_PUBLIC and "." not in name)
