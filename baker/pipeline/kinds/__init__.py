"""The bake of each kind of model."""
