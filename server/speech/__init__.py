"""Speech to text: read sound, decode windows of it, and join their texts."""
