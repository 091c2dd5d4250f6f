"""Memory of a program, planned before anything runs: lifetimes, one arena, and a check by measuring."""
