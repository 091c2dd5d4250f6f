"""Settings of back ends (`flow.backends`): torch's own, set in one place for both.

Triton kernels follow `cuda.matmul.allow_tf32` and `cudnn.allow_tf32`; the others hold for the ops
that run a kernel of torch.
"""

from torch.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp, opt_einsum

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]

__path__: list[str] = []  # compat/import_paths.py leads to what is below it
