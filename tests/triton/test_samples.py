"""Every op with interpreted kernels: its samples, forward and backward, are those of torch."""

import pytest
import samples

from onefold.testing.sample_checks import compare, local_results, reference

SAMPLES = samples.load()
IDS = [f"{index}-{sample!r}"[:120] for index, sample in enumerate(SAMPLES)]


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_local(sample):
    wanted = reference(sample)
    for twice in (False, True):
        assert compare(local_results(sample, twice), wanted, sample.tol) == ""
