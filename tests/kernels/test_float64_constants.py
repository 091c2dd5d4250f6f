"""What is computed in float64 has no constants that were rounded to float32 before.

Triton takes a number of Python for a float32 where no operand tells its type. Its interpreter does
not, so this is found in Triton's IR.
"""

import re
import struct

import numpy as np
import pytest
import triton
from triton.compiler import ASTSource

from onefold.kernels.aot.compile_kernel import GPUS
from onefold.kernels.gpu.pointwise import expression  # noqa: F401  (it defines the functions)
from onefold.kernels.gpu.pointwise.triton_functions import all_names, from_text, is_known, takes_of
from onefold.testing.gpu_driver.lowering import lower

CONSTANT = re.compile(r"arith\.constant (?:dense<)?([-+.\w]+)>? : (?:tensor<[\dx]+x)?f(32|64)")
# torch has it as a float32 in every dtype.
TORCHS = {"hardsigmoid_backward": {float(np.float32(1 / 6))}}
OF_FLOATS = [
    name
    for name in sorted(all_names())
    if is_known(name) and not name.startswith(("bitwise_", "complex_"))
]


def narrowed(ir):
    """The constants that a float32 holds exactly, but that are no short binary fractions."""
    values = {_value(text, bits) for text, bits in CONSTANT.findall(ir)}
    return {x for x in values if np.isfinite(x) and x == float(np.float32(x)) and x * 4096 % 1}


def _value(text, bits):
    if "0x" not in text:
        return float(np.float32(text)) if bits == "32" else float(text)
    kind = {"32": ">f", "64": ">d"}[bits]
    return struct.unpack(kind, bytes.fromhex(text.removeprefix("0x")))[0]


def lowered(value, count):
    """The IR of a kernel that writes a value of elements x0, x1 ... of float64."""
    given = [f"x{i}" for i in range(count)]
    loads = [f"    {x} = tl.load(at_{x})\n" for x in given]
    names = [*(f"at_{x}" for x in given), "y"]
    text = f"def run({', '.join(names)}):\n{''.join(loads)}    tl.store(y, {value})\n"
    kernel = triton.jit(from_text(text, "run"))
    return lower(ASTSource(kernel, dict.fromkeys(names, "*fp64"), {}, {}), GPUS["sm_90"], {})


@pytest.mark.parametrize("name", OF_FLOATS)
def test_functions_of_elements(name):
    count = len(takes_of(name))
    ir = lowered(f"{name}({', '.join(f'x{i}' for i in range(count))})", count)
    assert narrowed(ir) == TORCHS.get(name, set())


@pytest.mark.parametrize(
    "value", ["tl.maximum(x0, 0.1)", "x0 + tl.full((), 1.0, tl.float32) * 0.1"]
)
def test_a_narrowed_constant_is_seen(value):
    assert narrowed(lowered(value, 1)) == {float(np.float32(0.1))}
    assert not narrowed(lowered("x0 * 0.1 + 0.5", 1))
