"""The names of `flow.autograd`: backward, grad, Function, modes, functional, saved-tensor hooks.

Written by `make stubs`; do not edit.
"""

from .engine.autograd_api import *
