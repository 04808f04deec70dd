"""The terminal as a surface: `generate` and `chat`, on a service in the same process."""
