"""The parameters of a bundle: reading weights, quantizing them, writing the archive."""
