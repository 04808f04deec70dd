"""Golden values, and whether a program computes them."""
