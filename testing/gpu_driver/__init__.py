"""A GPU driver for Triton that needs no GPU: kernels are compiled, launches are checked, none runs.

Tensors lie on the CPU, and Triton kernels are chosen for them. Everything up to the GPU is real:
the host code of ops and its replay, the binding of arguments, what forms are specialized on, and
the compilation for sm_90. In place of CUDA's launcher stands one that checks each launch. What
kernels would have written is zero, so a program that depends on values takes the way for zeros.

`python -m onefold.testing.gpu_driver train.py --steps 2` runs a program this way and prints what it
launched and each problem; with problems it exits with 1.
"""

from .driver import GpuDriver as GpuDriver, Problem as Problem
from .launch_checks import Form as Form
