"""Ahead-of-time check: every Triton kernel compiles for every target, within a committed budget.

`python -m onefold.kernels.aot` compiles the `CASES` of `kernels/gpu`. It reads the facts of each
compiled form (registers, spills, shared memory, widths of loads and stores, matrix instructions)
and compares them with `budget.json`. It needs no GPU.
"""
