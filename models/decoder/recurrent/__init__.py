"""Layers with a state of the sequence, of a fixed size, in place of a row for each position."""
