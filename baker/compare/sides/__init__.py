"""The two sides of `hearth compare`: bundles, GGUF files, recordings and servers, as readers."""
