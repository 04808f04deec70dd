"""Compile StableHLO and C kernels to a program for one target."""
