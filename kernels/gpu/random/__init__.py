"""Philox random numbers and dropout."""
