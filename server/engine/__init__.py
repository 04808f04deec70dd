"""The engine: it decides which sequences run in the next call, and samples their tokens."""
