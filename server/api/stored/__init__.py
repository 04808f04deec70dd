"""What the server keeps for clients of the Responses API: responses, conversations, their items."""
