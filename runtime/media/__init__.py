"""The inputs of towers: pixels, and spectrograms of sound."""
