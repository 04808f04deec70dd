"""The routes of Gemini's API: /v1beta/models."""
