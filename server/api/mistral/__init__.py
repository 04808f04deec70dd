"""Routes of Mistral's API."""
