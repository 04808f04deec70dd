"""The towers that turn images into rows of embeddings."""
