"""The command `python -m onefold.kernels`: which functions Triton computes."""

from __future__ import annotations

from . import coverage

if __name__ == "__main__":
    print(coverage.text())
