"""Functions of modules, by torch's names (`flow.func`)."""

from .nn.functional_call import functional_call

__all__ = ["functional_call"]
