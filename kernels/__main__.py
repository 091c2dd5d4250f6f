"""The command `python -m onefold.kernels`: which ops have Triton twins, and why others not."""

from __future__ import annotations

import sys

from .gpu import table


def main() -> int:
    """Print the table. The number is the exit status."""
    rows = table.read()
    print(table.text(rows))
    left = sum(bool(row.torch) for row in rows.values())
    print(f"\n{len(rows)} ops, {len(rows) - left} of them without torch on cuda.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
