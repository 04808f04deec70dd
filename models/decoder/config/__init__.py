"""The configuration of a decoder, and how it is read from config.json and GGUF metadata."""
