"""Serve a bundle over HTTP."""
