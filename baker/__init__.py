"""Bake bundles: compile models, convert weights. Also compares, verifies and tunes models."""
