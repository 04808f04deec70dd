"""The routes of Anthropic's API: /v1/messages."""
