"""Keep what was computed for beginnings of prompts, in memory and on disk."""
