"""Runs published clients against a server: see `python -m tools.clients --help`."""
