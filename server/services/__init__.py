"""The models that a server offers: when each is loaded, what its routes share, and its reload."""
