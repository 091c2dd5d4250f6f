"""CUDA graphs: the launches of a program, recorded once and replayed without their host code."""
