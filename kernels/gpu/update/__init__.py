"""Optimizer updates of many tensors in one launch."""
