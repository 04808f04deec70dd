"""Routes for operators: health, metrics, properties, slots and reload."""
