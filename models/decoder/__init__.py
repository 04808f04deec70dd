"""What decoder-only transformers share: configuration, layers, and names of tensors in files."""
