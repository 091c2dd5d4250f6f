"""Memory planning: lifetimes of values, one arena for all of them, and a probe that checks it."""
