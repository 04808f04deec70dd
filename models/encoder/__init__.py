"""The parts that encoders share: texts as vectors, with attention in both directions."""
