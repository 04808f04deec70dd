"""The NumPy reference that compiled programs are compared with."""
