"""What ops deduce of their results is what their kernels make of tensors without data, or raise."""

from collections import defaultdict

import pytest
import samples
import torch
from hypothesis import given, settings, strategies as st

from onefold.engine.meta import Meta
from onefold.engine.op import Op, no_kernel
from onefold.testing.recording import Recorder, record
from onefold.testing.sample_checks import local_results

pytestmark = pytest.mark.filterwarnings("ignore")

CPU = torch.device("cpu")
DTYPES = [
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn,
    torch.int64, torch.int32, torch.uint8, torch.uint16, torch.bool, torch.complex64,
]  # fmt: skip
NUMBERS = [-3, -2, -1, 0, 1, 2, 3, 7, None, True, False, 0.5, float("inf"), 1e300, 1j]


@pytest.fixture(scope="module")
def calls(world):
    """The distinct calls of ops that deduce, of all samples, by the class of the op and its name."""
    recorder = Recorder()
    for sample in samples.load():
        with record(recorder):
            local_results(sample, second=True)
    found = defaultdict(dict)
    for call in recorder.calls.values():
        op = call.op
        own = type(op).deduce is not Op.deduce or type(op).infer is not Op.infer or op.like
        if own and op.kernel is not no_kernel:
            metas = call.with_tensors(meta(v.shape, v.dtype) for v in call.tensors)
            given = (*metas, *op.following(call.attrs))
            found[type(op).__name__, op.name][given] = op
    return {key: [(op, given) for given, op in some.items()] for key, some in found.items()}


def meta(shape, dtype):
    return Meta.of(shape, dtype, device=CPU)


def told(infer, *args):
    """The shapes and dtypes of the results; None if there are none, or else the error."""
    try:
        found = infer(*args)
    except Exception as error:  # noqa: BLE001  # whatever torch raises
        return type(error), str(error)
    if found is None:
        return None
    several = found if isinstance(found, tuple) else (found,)
    return [(tuple(each.shape), each.dtype) for each in several]
