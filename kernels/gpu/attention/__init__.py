"""Attention without a matrix of scores, and rotary position embedding."""
