"""Launching Triton kernels: configurations, replay of host code, ahead-of-time cases."""
