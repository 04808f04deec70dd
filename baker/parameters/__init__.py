"""Weights as a bundle stores them."""
