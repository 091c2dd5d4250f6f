"""Tuner: times the allowed configurations of kernels on a GPU and rewrites the table of the best.

`python -m onefold.kernels.tune [kernel ...]`; see `kernels/gpu/launch/configs.py` for who reads the
table.
"""
