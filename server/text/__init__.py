"""The text layer: prompts and templates to token ids, and token ids to answers."""
