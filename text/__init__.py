"""Text: templates and prompts to token ids, grammars and tool calls, and token ids to answers."""
