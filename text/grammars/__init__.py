"""Grammars and schemas that an answer must match, and the constraint made from them."""
