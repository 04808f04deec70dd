"""Speed and acceptance of drafted tokens."""
