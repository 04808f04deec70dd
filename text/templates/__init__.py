"""Chat templates: the prompt of a conversation, rendered in a sandbox."""
