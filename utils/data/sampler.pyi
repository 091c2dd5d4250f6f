"""Data sets and loaders: torch's, with batches of onefold tensors and onefold's random numbers.

Written by `make stubs`; do not edit.
"""

from . import *
