"""The routes of Ollama's API: /api/chat, /api/generate, /api/embed, and the list of models."""
