"""Passes. Each rewrites a program into an equivalent, cheaper one. One pass per file."""
