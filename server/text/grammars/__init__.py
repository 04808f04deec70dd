"""What an answer must match: grammars, schemas, and the constraint that they become."""
