"""Servers under load: their processes, their clients and the requests."""
