"""Triton kernels: `gpu/<folder>/norm_kernels.py` has those of `kernels/norm_ref.py`, and so on.

The function that launches a kernel has the name and the arguments of the torch reference against
which it is tested. Beside it stand the Triton kernel, the rule that chooses its blocks, and in
`CASES` the forms of it that are compiled ahead of time. These modules import Triton, which takes a
fifth of a second; `kernels/select.py` loads them when a plan first needs one.
"""
