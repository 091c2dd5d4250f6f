"""What torch was built with (`flow.version`): the versions of CUDA and ROCm, None without them."""

from torch.version import cuda, debug, git_version, hip

__all__ = ["cuda", "debug", "git_version", "hip"]
