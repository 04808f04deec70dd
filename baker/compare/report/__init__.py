"""The report of a comparison: JSON, Markdown and one HTML page."""
