"""The names of tensor methods and operators that call an op, or are the in-place form of one."""

# Methods that call the op of their own name with the tensor as first argument.
METHODS = """
abs absolute acos acosh add add_ addcdiv addcmul addmm addmv adjoint all allclose amax amin
aminmax angle any arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort
argwhere asin asinh atan atan2 atanh baddbmm bfloat16 bitwise_and bitwise_left_shift bitwise_not
bitwise_or bitwise_right_shift bitwise_xor bmm bool broadcast_to byte cast cdouble ceil cfloat
char check_meta_consistency chunk clamp clamp_max clamp_min clip clone conj conj_physical
contiguous copy_ copysign cos cosh count_nonzero cpu cuda cumprod cumsum deg2rad diag diag_embed
diagonal digamma div div_ divide dot double eq equal erf erfc erfinv exp exp2 expand expand_as
expm1 fill_ fix flatten flip fliplr flipud float float_power floor floor_divide fmax fmin fmod
frac gather ge global_to_global greater greater_equal gt half hardshrink heaviside hermitian
hsplit hypot index_add index_copy index_fill index_put index_select inner int is_contiguous
isclose isfinite isinf isnan isneginf isposinf item kthvalue le lerp less less_equal lgamma
local_to_global log log10 log1p log2 log_softmax logaddexp logaddexp2 logical_and logical_not
logical_or logical_xor logit logsumexp long lt masked_fill masked_scatter masked_select matmul max
maximum mean median min minimum mm moveaxis movedim msort mul mul_ multiply mv nan_to_num nanmean
nanmedian nansum narrow ne neg negative new_empty new_full new_ones new_tensor new_zeros nonzero
norm not_equal numpy outer permute polygamma positive pow prod rad2deg ravel reciprocal relu
remainder repeat repeat_interleave reshape reshape_as resolve_conj roll rot90 round rsqrt scatter
scatter_add scatter_reduce select sgn short sigmoid sign signbit sin sinc sinh softmax sort split
split_with_sizes sqrt square squeeze std sub sub_ subtract sum swapaxes swapdims t take
take_along_dim tan tanh tensor_split tile to to_consistent to_global to_local to_torch tolist topk
transpose tril triu true_divide trunc type_as unbind unflatten unfold unique unsqueeze var vdot
vector_norm view view_as vsplit xlogy zero_
backward detach register_hook retain_grad
""".split()

# Methods `name_` that give the named tensor the result of the op `name`.
INPLACE = """
abs absolute acos acosh addcdiv addcmul addmm addmv arccos arccosh arcsin arcsinh arctan arctan2
arctanh asin asinh atan atan2 atanh baddbmm bitwise_and bitwise_left_shift bitwise_not bitwise_or
bitwise_right_shift bitwise_xor ceil clamp clamp_max clamp_min clip conj_physical copysign cos
cosh cumprod cumsum deg2rad digamma divide eq erf erfc erfinv exp exp2 expm1 fix float_power floor
floor_divide fmod frac ge greater greater_equal gt heaviside hypot index_add index_copy index_fill
index_put le lerp less less_equal lgamma log log10 log1p log2 logical_and logical_not logical_or
logical_xor logit lt masked_fill masked_scatter multiply nan_to_num ne neg negative not_equal
polygamma pow rad2deg reciprocal relu remainder round rsqrt scatter scatter_add scatter_reduce sgn
sigmoid sign sin sinc sinh sqrt square subtract tan tanh tril triu true_divide trunc xlogy
""".split()

# Python's operators, and the op or function that each calls with the tensor as first argument.
OPERATORS = {
    "__add__": "add",
    "__radd__": "add",
    "__sub__": "sub",
    "__mul__": "mul",
    "__rmul__": "mul",
    "__truediv__": "div",
    "__matmul__": "matmul",
    "__neg__": "neg",
    "__pow__": "pow",
    "__floordiv__": "floor_divide",
    "__mod__": "remainder",
    "__abs__": "abs",
    "__invert__": "bitwise_not",
    "__and__": "bitwise_and",
    "__rand__": "bitwise_and",
    "__or__": "bitwise_or",
    "__ror__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__rxor__": "bitwise_xor",
    "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift",
    "__eq__": "eq",
    "__ne__": "ne",
    "__lt__": "lt",
    "__le__": "le",
    "__gt__": "gt",
    "__ge__": "ge",
    "__getitem__": "getitem",
    "__setitem__": "setitem_",
    "__iadd__": "add_",
    "__isub__": "sub_",
    "__imul__": "mul_",
    "__itruediv__": "div_",
    "__repr__": "describe",
    "__format__": "to_format",
    "__bool__": "to_bool",
    "__index__": "to_index",
}

# Operators that give the named tensor the result of an op.
INPLACE_OPERATORS = {
    "__ifloordiv__": "floor_divide",
    "__imod__": "remainder",
    "__ipow__": "pow",
    "__iand__": "bitwise_and",
    "__ior__": "bitwise_or",
    "__ixor__": "bitwise_xor",
}
