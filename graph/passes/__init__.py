"""Passes: each rewrites a program into one that computes the same with less; one file each."""
