"""The texts that both sides read, and the difference of their predictions at each position."""
