"""Triton's interpreter, repaired, so that kernels on the CPU compute what a GPU would.

With `ONEFOLD_KERNELS=triton TRITON_INTERPRET=1` Triton kernels run on the CPU, in numpy. The stock
interpreter (3.6, 3.7) adds, compares and multiplies the bits of bfloat16 as if they were integers,
truncates where the compiler rounds, has no libdevice, keeps numbers given as arguments in float64,
accepts what the compiler refuses, and dies of a wrong address. tests/triton/test_interpreter.py
shows each of these; when one is repaired upstream, its test says so.
"""
