"""Run the entry points of a bundle. It knows arrays and buffers, and no text and no requests."""
