"""Launches what the tuner measures, for a folder of forms.

python -m onefold.kernels.aot --cache FOLDER --programs "tests/tuned_forms.py attention bfloat16"
"""

import sys

import torch

from onefold.kernels.tune.__main__ import chosen


def main(family, dtype, *shapes):
    for tuned, kind, shape_class in chosen([family], [dtype], shapes):
        sizes = tuned.shapes[shape_class]
        for config in tuned.allowed(kind, sizes):
            with torch.inference_mode():
                tuned.call(config, kind, sizes)()


if __name__ == "__main__":
    main(*sys.argv[1:])
