"""OpenAI's routes: chat completions, completions, responses, embeddings and models."""
