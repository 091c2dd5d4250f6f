"""The knowledge: one file per op family. Importing this package enters every op by name."""
import importlib, pathlib
for _p in sorted(pathlib.Path(__file__).parent.glob("*.py")):
    if _p.stem != "__init__":
        try: importlib.import_module("." + _p.stem, __name__)
        except Exception as e: print("SKIP", _p.stem, repr(e)[:200])
from ..names import all_names as _all_names

# Names that are only tensor methods, or that tensor methods and ops reach each other by.
NOT_PUBLIC = frozenset(
    """
    add_ assign_result backward bfloat16 bool box byte cast cdouble cfloat char check_meta_consistency
    contiguous copy_ cpu div_ mul_ sub_ cuda deep_copy describe detach double expand_as fill_ float
    global_to_global half int is_contiguous item local_to_global long mm_nt mm_tn numpy
    ones_like_whole register_hook requires_new_memory reshape_as retain_grad reversed_dims rows_tn
    set_data set_grad set_requires_grad setitem setitem_ short sum_rows sum_to to to_bool
    to_consistent to_index to_torch tolist type_as view view_as zero_ getitem
    """.split()
)
PUBLIC = sorted(name for name in _all_names() if name not in NOT_PUBLIC)
