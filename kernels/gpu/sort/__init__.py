"""Sorting, top-k and order statistics."""
