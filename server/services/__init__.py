"""A bundle being served: what its routes share, and how one bundle replaces another."""
