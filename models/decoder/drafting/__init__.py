"""Drafters: parts of a program that predict tokens, which the model then verifies."""
