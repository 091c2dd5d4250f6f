"""Triton twins of the kernels: `gpu/norm.py` has those of `kernels/norm.py`, and so on.

A twin has the name and the arguments of the torch reference beside which it is tested. Beside it
stand the Triton kernel, the launch rule, and in `CASES` the forms of it that are compiled ahead of
time. These modules import Triton, which takes a fifth of a second; `kernels/select.py` loads them
when a plan first needs one.
"""
