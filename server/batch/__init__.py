"""`hearth batch`: answer a file of requests, in OpenAI's batch format."""
