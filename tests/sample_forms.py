"""Launches what samples of ops launch in float64, float32 and bfloat16, for a folder of forms.

python -m onefold.kernels.aot --cache FOLDER --programs "tests/sample_forms.py 1/8"
"""

import sys
import warnings

import samples
import torch

from onefold.kernels.gpu.launch import trace_cache
from onefold.testing.sample_checks import local_results

DTYPES = [None, torch.float32, torch.bfloat16]


def main(part, match=""):
    index, count = map(int, part.split("/"))
    found = [sample for sample in samples.load() if match in repr(sample)]
    trace_cache.TRACED_AFTER = 0  # so that the second call is replayed
    warnings.simplefilter("ignore")
    for sample in found[len(found) * (index - 1) // count : len(found) * index // count]:
        for dtype in DTYPES:

            def change(value, dtype=dtype):
                return value if dtype is None or value.dtype != torch.float64 else value.to(dtype)

            try:
                for _ in range(2):
                    local_results(sample, change=change)
            except RuntimeError as error:  # values are zeros here, and torch lacks some dtypes
                print(f"{sample!r} {dtype}: {error}".split("\n")[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
