"""Look at a finished bundle, verify it, or bake it again."""
