"""What the routes for conversations share: parts of messages, the template, the reasoning."""
