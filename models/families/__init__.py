"""The architectures, a file for each."""
