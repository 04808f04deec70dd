"""Stages of the bake of a language model."""
