"""The names of tensor methods and operators that call an op, and of in-place methods.

Ops that are methods in torch add theirs to these lists when they are defined. Listed here are those
that torch does not have, and those that the engine itself defines.
"""


def _operators(table: str) -> dict[str, str]:
    pairs = [pair.split("=") for pair in table.split()]
    return {f"__{operator}__": op for operator, op in pairs}


# Methods that call the op of their own name with the tensor as first argument.
METHODS = """
add_ backward cast check_meta_consistency detach div_ global_to_global hermitian is_offloaded load
local_to_global mul_ offload register_hook register_post_accumulate_grad_hook retain_grad sub_
to_consistent to_global to_local to_torch vector_norm
""".split()

# Methods `name_` that give the named tensor the result of the op `name`.
INPLACE: list[str] = []

# Python's operators, and the op or function that each calls with the tensor as first argument.
OPERATORS = _operators("""
add=add radd=add sub=sub mul=mul rmul=mul truediv=div matmul=matmul neg=neg pow=pow
floordiv=floor_divide mod=remainder abs=abs invert=bitwise_not and=bitwise_and rand=bitwise_and
or=bitwise_or ror=bitwise_or xor=bitwise_xor rxor=bitwise_xor lshift=bitwise_left_shift
rshift=bitwise_right_shift eq=equals ne=differs lt=lt le=le gt=gt ge=ge getitem=getitem
setitem=setitem_ iadd=add_ isub=sub_ imul=mul_ itruediv=div_ repr=describe format=to_format
bool=to_bool index=to_index
""")

# Operators that give the named tensor the result of an op.
INPLACE_OPERATORS = _operators("""
ifloordiv=floor_divide imod=remainder ipow=pow iand=bitwise_and ior=bitwise_or ixor=bitwise_xor
""")
