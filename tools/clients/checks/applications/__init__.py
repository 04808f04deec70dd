"""Programs that people ask in a page, a notebook or a home."""
