"""Gather, scatter, indexing, slices and padding."""
