"""The parts that models of speech share: an encoder of sound, and a decoder that reads it."""
