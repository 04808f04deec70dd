"""Open a bundle and run its compiled program on arrays. Knows no text and no requests."""
