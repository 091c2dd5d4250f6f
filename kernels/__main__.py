"""The command `python -m onefold.kernels`: which functions Triton computes."""

from __future__ import annotations

from .gpu import table

if __name__ == "__main__":
    print(table.text())
