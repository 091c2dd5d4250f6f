"""The names of tensor methods: those that call an op, and those that are its in-place form.

Ops that are methods in torch add theirs to these lists when they are defined, so that what stands
here is what torch does not have.
"""

# Methods that call the op of their own name with the tensor as first argument.
METHODS = """
add_ cast check_meta_consistency div_ global_to_global hermitian local_to_global mul_ sub_
to_consistent to_global to_local to_torch vector_norm
""".split()

# Methods `name_` that give the named tensor the result of the op `name`.
INPLACE: list[str] = []

# Ops without an in-place form although torch has one: those that change the shape, and `normal_`,
# whose arguments are others.
NOT_IN_PLACE = frozenset("normal squeeze swapaxes swapdims t transpose unsqueeze".split())
