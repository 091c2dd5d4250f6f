"""Calibration: the hardware file of this machine, measured by two processes at once."""
