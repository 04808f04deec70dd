"""The models that `hearth compare` can compare, behind one interface."""
