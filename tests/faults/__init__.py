"""Faults that take long to provoke: `python -m tests.faults --help`."""
