"""Pointwise kernels that are generated from expressions, and copies."""
