"""Onefold trains neural networks on many devices from a program written for one."""
