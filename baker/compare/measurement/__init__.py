"""What both sides read, and how far their predictions differ at each position."""
