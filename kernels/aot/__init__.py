"""Ahead-of-time check: every Triton kernel compiles for every target, within a committed budget.

`python -m onefold.kernels.aot` compiles the `CASES` of `kernels/gpu`, reads what each became
(registers, spills, shared memory, widths of loads and stores, matrix instructions) and compares
that with `budget.json`. It needs no GPU.
"""
