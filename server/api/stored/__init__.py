"""What the server keeps for clients: responses, conversations, batches, and their items."""
