"""Read files and JSON that others made: formats, encodings, types, and messages about them."""
