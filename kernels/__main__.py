"""The command `python -m onefold.kernels`: which functions Triton computes."""

from __future__ import annotations

import argparse

from . import coverage

if __name__ == "__main__":
    argparse.ArgumentParser(description="Print which functions Triton computes.").parse_args()
    print(coverage.text())
