"""Memory of a program, planned before anything runs: lifetimes, one arena, a measuring check."""
