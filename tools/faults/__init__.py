"""Faults that take long to provoke: `python -m tools.faults --help`."""
