"""Bake a bundle in stages: trace, compile, write the weights, self-test."""
