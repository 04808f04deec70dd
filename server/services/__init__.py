"""A bundle that is served: what its routes share, and how a reload replaces it."""
