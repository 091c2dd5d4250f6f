"""Tuner: measures the allowed configurations of kernels on a GPU and writes the best to the table.

The command is `python -m onefold.kernels.tune [kernel ...]`. The table is read by
`kernels/gpu/launch/configs.py`.
"""
