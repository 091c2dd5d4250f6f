"""Reductions, scans, softmax, normalization and cross entropy."""
