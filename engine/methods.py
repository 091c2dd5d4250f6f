"""The names of tensor methods: those that call an op, and those that are its in-place form.

Elementwise ops add theirs when they are registered.
"""

# Methods that call the op of their own name with the tensor as first argument.
METHODS = """
add_ addmm addmv adjoint all amax amin aminmax any argmax argmin argsort argwhere baddbmm bfloat16
bmm bool broadcast_to byte cast cdouble cfloat char check_meta_consistency chunk clone contiguous
copy_ count_nonzero cpu cuda cumprod cumsum diag diag_embed diagonal div_ dot double expand
expand_as fill_ flatten flip fliplr flipud float gather global_to_global half hermitian hsplit
index_add index_copy index_fill index_put index_select inner int is_contiguous item kthvalue
local_to_global log_softmax logsumexp long masked_scatter masked_select matmul max mean median min
mm moveaxis movedim msort mul_ mv nanmean nanmedian nansum narrow new_empty new_full new_ones
new_tensor new_zeros nonzero norm numpy outer permute prod ravel repeat repeat_interleave reshape
reshape_as roll rot90 scatter scatter_add scatter_reduce select short softmax sort split
split_with_sizes squeeze std sub_ sum swapaxes swapdims t take take_along_dim tensor_split tile to
to_consistent to_global to_local to_torch tolist topk transpose tril triu type_as unbind unflatten
unfold unique unsqueeze var vdot vector_norm view view_as vsplit zero_
""".split()

# Methods `name_` that give the named tensor the result of the op `name`.
INPLACE = """
addmm addmv baddbmm cumprod cumsum index_add index_copy index_fill index_put masked_scatter
scatter scatter_add scatter_reduce tril triu
""".split()
