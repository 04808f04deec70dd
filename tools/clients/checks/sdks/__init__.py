"""Packages of a vendor for the API of that vendor."""
