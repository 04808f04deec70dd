"""Packages that ask servers of several APIs, and run tools and agents."""
