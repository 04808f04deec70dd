"""The parts that decoders share: configuration, layers, and names of tensors in files."""
