"""The names of tensor methods and operators that call an op, and of in-place methods.

Ops that are methods in torch add theirs to these lists when they are defined. Listed here are those
that torch does not have, and those that the engine itself defines.
"""

# Methods that call the op of their own name with the tensor as first argument.
METHODS = """
add_ backward cast check_meta_consistency detach div_ global_to_global hermitian local_to_global
mul_ register_hook retain_grad sub_ to_consistent to_global to_local to_torch vector_norm
""".split()

# Methods `name_` that give the named tensor the result of the op `name`.
INPLACE: list[str] = []

# Ops without an in-place form although torch has one: those that change the shape, and `normal_`,
# whose arguments are others.
NOT_IN_PLACE = frozenset("normal squeeze swapaxes swapdims t transpose unsqueeze".split())

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
