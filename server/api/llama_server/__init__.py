"""The routes of llama-server for text: /completion, /infill, /embedding."""
