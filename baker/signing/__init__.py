"""Sign bundles and adapters, and verify their signatures."""
