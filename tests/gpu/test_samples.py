"""Every op on the GPU against torch: as the samples say, and in narrower dtypes."""

import os

import device_checks
import pytest
import samples
import torch

# Before there are thousands of them to skip one by one.
if not (torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"):
    pytest.skip("needs a CUDA device, or Triton's interpreter", allow_module_level=True)

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::onefold.FallbackWarning")]

SAMPLES = samples.load()
IDS = [f"{index}-{sample!r}"[:120] for index, sample in enumerate(SAMPLES)]
DTYPES = [torch.float32, torch.bfloat16]
TWO = [0, 1]  # ranks of one process, which share the device


def can_be_narrow(sample):
    return any(x.dtype in device_checks.WIDE for x in sample.tensors())


NARROW = [i for i, sample in enumerate(SAMPLES) if can_be_narrow(sample)]
each = pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
each_narrow = pytest.mark.parametrize(
    "sample", [SAMPLES[i] for i in NARROW], ids=[IDS[i] for i in NARROW]
)


@each
def test_local(sample):
    assert device_checks.as_it_is(sample) == ""


@each
def test_two_ranks(sample):
    assert device_checks.as_it_is(sample, TWO) == ""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@each_narrow
def test_narrow(sample, dtype):
    check_narrow(sample, dtype)


@each_narrow
def test_narrow_on_two_ranks(sample):
    check_narrow(sample, torch.bfloat16, TWO)


def check_narrow(sample, dtype, ranks=()):
    try:
        text = device_checks.narrow(sample, dtype, ranks)
    except device_checks.TorchCannot as error:
        pytest.skip(f"torch has none either: {error}"[:200])
    assert text == ""
